package housetest

import "syscall"

// dieWithUs has the kernel kill the child when this process dies.
func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
