//go:build !linux

package local

import "syscall"

// dieWithOwner does nothing: only Linux has a parent death signal. The next
// start on the folder ends the orphan.
func dieWithOwner(*syscall.SysProcAttr, syscall.Signal) {}
