// Package sandbox runs a program so that it sees and reaches only what it needs.
//
// # What is isolated
//
// A program in a sandbox has its own user, process, network, mount and IPC namespaces of
// Linux, the id of its user and none of the rights of root. A [Policy] says what it sees:
//
//   - The files of the machine can be read, except those that the policy hides, the usual
//     places of keys and passwords, sockets, and what is below /tmp, /var/tmp and /run.
//     Only its home and the writable paths of the policy can be written, and an empty
//     /tmp in memory.
//   - Its network has only a loopback interface. A connection to a [Route] of the policy
//     is passed on to the same host and port of the machine, and there is no other way
//     out.
//   - It sees and signals only its own processes. All of them end with the first one.
//   - It can't make namespaces or sockets of unusual kinds, open devices other than the
//     usual ones, or get rights from programs that have them.
//
// [Limits] bound its processes, open files, CPU time and the size of its files.
//
// # What is not isolated
//
// It runs on the kernel of the machine, whose system calls it can make, except for some
// sockets. It is not a virtual machine. Files that the user can read and the policy does not hide stay readable. CPU and
// disk are shared.
//
// # What a machine needs
//
// Linux 5.14 and namespaces that the user may make. [Check] finds out. No other program
// is needed, and no right. A sandbox begins as the same executable, started again, which never
// gets to its main function.
package sandbox
