//go:build !linux

package housetest

import "syscall"

// dieWithUs does nothing where there is no such thing.
func dieWithUs() *syscall.SysProcAttr { return nil }
