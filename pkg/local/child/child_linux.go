package child

import "syscall"

// dieWithUs has the kernel kill the child when this process dies. A process group
// of its own: a Ctrl-C at the terminal is ours to handle.
func dieWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
