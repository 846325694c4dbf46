// Package filesystem forwards a document as a file in a folder that the receiver
// backend watches.
//
// A file is written under a hidden name in its folder, synced, renamed, and the
// folder is synced, so whoever sees the name sees the whole document, and after
// Accepted a loss of power does not take it away. The rename is the step that
// cannot be taken back. A repeat has the same name and replaces the file.
//
// The hidden name is different at each try, so that a worker that lost its lease
// cannot write into the file of its successor. A try removes what earlier ones
// of the same document have left behind.
//
// It decides where a document goes (Layout) and assumes one local or mounted
// file system whose rename is atomic. Every path stays inside the folder,
// whatever the document or a symbolic link says (os.Root). It fails as Refused
// and transient, on the server's account, since a full disk or a missing
// permission gets repaired.
//
// It owns no goroutine. ctx is looked at between pieces; one system call on a
// dead mount cannot be called back.
package filesystem
