// Package sftp forwards a document as a file on an SFTP server (version 3 of the
// protocol, as OpenSSH speaks it).
//
// A file is written under a hidden name in its folder, synced when the server
// can (fsync@openssh.com), its size is compared with the document's, and then it
// is renamed. The rename request is the step that cannot be taken back; without
// an answer to it the outcome is Unknown. A repeat has the same name: where the
// server can replace a file (posix-rename@openssh.com) it does, elsewhere a file
// of that name and size is taken for what it must be, the result of an earlier
// attempt, since only a rename ever makes it.
//
// It decides nothing about folders: the configured one exists already, since
// making it would hide a typing mistake. It assumes nothing about the server's
// identity: its host key is configured or in a known_hosts file, and any other is
// refused.
//
// How it fails: a connection that breaks is a transient refusal before the
// rename. The hidden file of a try whose connection broke is removed over the
// next good one; only after a crash of ours does one stay.
//
// Sessions are kept, a few, and for a short time. Their goroutines belong to the
// two libraries; whoever ends a session waits for them. The end of ctx closes the
// connection, since nothing in the protocol can be called back.
package sftp
