//go:build !linux

package child

import "syscall"

// dieWithUs only sets the child apart, where the kernel does not do more.
func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
