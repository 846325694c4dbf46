package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrInUse says that another living process owns the folder.
var ErrInUse = errors.New("folder is in use by another process")

const lockName = "lock"

// lock is the ownership of a folder. The kernel gives it up when the process
// dies, however it dies, so a lock that can be taken proves that no other
// Posthouse process owns the folder. The file holds two process ids for people
// and for orphans: the owner's and, for PostgreSQL, the server's.
type lock struct{ file *os.File }

// lockDir takes the folder dir, which must exist, or fails with ErrInUse.
func lockDir(dir string) (*lock, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		owner, _ := readPIDs(path)
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s (process %d): %w", dir, owner, ErrInUse)
		}
		return nil, fmt.Errorf("lock folder %s: %w", dir, err)
	}
	return &lock{file: f}, nil
}

// server is the process id of the server that the last owner started; 0 when
// there is none on record.
func (l *lock) server() int {
	_, server := readPIDs(l.file.Name())
	return server
}

// record writes this process and its server (0 for none) into the lock file.
func (l *lock) record(server int) error {
	text := fmt.Sprintf("%d\n%d\n", os.Getpid(), server)
	if err := l.file.Truncate(0); err != nil {
		return fmt.Errorf("record owner: %w", err)
	}
	if _, err := l.file.WriteAt([]byte(text), 0); err != nil {
		return fmt.Errorf("record owner: %w", err)
	}
	return nil
}

func (l *lock) release() {
	// Given up in so many words: a child that was forked and has not begun its program
	// yet holds the file open too, and closing ours would leave it locked. The file
	// stays, since removing it would let two processes lock two files of one name.
	_ = syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN)
	_ = l.file.Close()
}

func readPIDs(path string) (owner, server int) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, 0
	}
	fields := strings.Fields(string(text))
	if len(fields) > 0 {
		owner, _ = strconv.Atoi(fields[0])
	}
	if len(fields) > 1 {
		server, _ = strconv.Atoi(fields[1])
	}
	return owner, server
}

// Abandoned says that dir was owned by a process that lives no more: it has a
// lock file that nobody holds.
func Abandoned(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, lockName)); err != nil {
		return false
	}
	l, err := lockDir(dir)
	if err != nil {
		return false
	}
	l.release()
	return true
}
