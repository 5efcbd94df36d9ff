package sandbox

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// families returns the kinds of sockets that a program may make. A network namespace does
// not isolate all others: those to the host of a virtual machine (AF_VSOCK) lead out.
func families() []uint32 {
	return []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}
}

// refused returns the numbers of system calls that the kernel answers as if it did not have
// them. io_uring makes and connects sockets without the calls that a filter sees. Keyrings
// may be those of the worker.
func refused() []uint32 {
	return []uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY}
}

// architectures returns the number by which the kernel names the architecture of this
// program's system calls (linux/audit.h).
func architectures() map[string]uint32 {
	return map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}
}

// Where a filter finds the number, the architecture and the first argument of a system call
// (struct seccomp_data of linux/seccomp.h), on machines with the low half first.
const (
	numberAt       = 0
	architectureAt = 4
	argumentAt     = 16
)

// foreign is the first number of amd64's second set of system calls (x32).
const foreign = 0x40000000

// filterSystemCalls lets this thread, and what it starts, make only sockets of those
// families, and refuses some other calls. System calls of another architecture than this program's have other numbers,
// so none is possible.
func filterSystemCalls() error {
	architecture, ok := architectures()[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("system calls of %s are not known", runtime.GOARCH)
	}
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	// jump goes on yes or no instructions further, after the next one.
	jump := func(test uint16, value uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, K: value, Jt: yes, Jf: no}
	}
	answer := func(what uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: what}
	}
	allow, none := answer(unix.SECCOMP_RET_ALLOW), answer(unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS))
	program := []unix.SockFilter{
		load(architectureAt),
		jump(unix.BPF_JEQ, architecture, 1, 0),
		none,
		load(numberAt),
		jump(unix.BPF_JGE, foreign, 0, 1),
		none,
	}
	for _, number := range refused() {
		program = append(program, jump(unix.BPF_JEQ, number, 0, 1), none)
	}
	program = append(program, jump(unix.BPF_JEQ, unix.SYS_SOCKET, 1, 0), allow, load(argumentAt))
	for _, family := range families() {
		program = append(program, jump(unix.BPF_JEQ, family, 0, 1), allow)
	}
	program = append(program, answer(unix.SECCOMP_RET_ERRNO|uint32(unix.EAFNOSUPPORT)))
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}                                 //nolint:gosec // some ten
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0, 0) //nolint:gosec // the kernel copies it
}
