package local

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user that runs PostgreSQL in place of root. A nil account means
// that this process runs it as itself.
type account struct {
	name     string
	uid, gid uint32
}

// accountFor picks who runs the cluster whose data lie, or will lie, in data.
// Root hands over to the owner of an existing cluster, else to postgres, else
// to nobody. Anyone else must own the cluster.
func accountFor(data string) (*account, error) {
	self := os.Geteuid()
	owner, exists := ownerOf(data)
	switch {
	case self != 0 && exists && owner.uid != uint32(self):
		return nil, fmt.Errorf("cluster %s belongs to user %s: run as that user, or choose another folder", data, owner.name)
	case self != 0:
		return nil, nil
	case exists && owner.uid != 0:
		return owner, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil && uid != 0 {
			return &account{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
		}
	}
	return nil, fmt.Errorf("PostgreSQL does not run as root, and there is neither a user postgres nor nobody: create one, or run as another user")
}

func ownerOf(path string) (*account, bool) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, false
	}
	a := &account{name: strconv.Itoa(int(st.Uid)), uid: st.Uid, gid: st.Gid}
	if u, err := user.LookupId(a.name); err == nil {
		a.name = u.Username
	}
	return a, true
}

// attr makes a child run as the account, with no other groups.
func (a *account) attr() *syscall.SysProcAttr {
	if a == nil {
		return &syscall.SysProcAttr{}
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: a.uid, Gid: a.gid}}
}

// own gives path to the account.
func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	if err := os.Chown(path, int(a.uid), int(a.gid)); err != nil {
		return fmt.Errorf("give %s to user %s: %w", path, a.name, err)
	}
	return nil
}

// reaches checks that the account can enter every existing folder above dir,
// so that the answer is a sentence and not "permission denied" from a child.
func (a *account) reaches(dir string) error {
	if a == nil {
		return nil
	}
	for at := filepath.Dir(dir); ; at = filepath.Dir(at) {
		real, err := filepath.EvalSymlinks(at)
		if err == nil && real != at {
			// Check the way to the link and the way to where it points.
			if err := a.reaches(filepath.Join(real, "x")); err != nil {
				return err
			}
		}
		if info, err := os.Stat(at); err == nil && !a.enters(info) {
			return fmt.Errorf("PostgreSQL does not run as root, and user %s cannot enter %s (mode %04o): "+
				"choose a folder below one that others may enter, such as /var/lib/posthouse, or run as another user",
				a.name, at, info.Mode().Perm())
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

func (a *account) enters(info fs.FileInfo) bool {
	mode := info.Mode().Perm()
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		switch {
		case st.Uid == a.uid:
			return mode&0o100 != 0
		case st.Gid == a.gid:
			return mode&0o010 != 0
		}
	}
	return mode&0o001 != 0
}
