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
// # Containers
//
// A program can run in a container of podman instead ([Container]). It then sees
// the files of an image, and of the machine only its home, its directory and its writable
// paths. Network, processes and limits are as above: this executable is the first process
// there too, checks that podman has left no right and no network, and passes on connections
// in the same way. [CheckContainer] finds out whether that works.
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
// is needed, and no right. A container needs root, podman, and an executable that needs no
// libraries. A sandbox begins as the same executable, started again, which never gets to its
// main function.
package sandbox
