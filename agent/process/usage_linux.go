package process

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// usageBelow returns what the descendants of root take. root is a shim or the first process of
// a sandbox, whose main thread starts and adopts all its children. It stops at a process with
// which there are more than maxProcesses, unless that is 0. Processes that end meanwhile count
// nothing.
func usageBelow(root, maxProcesses int) usage {
	u := usage{cpu: readStat(root).cpu} // of root as well: it has waited for processes that ended
	type family struct{ pid, threads int }
	for queue := []family{{root, 1}}; len(queue) > 0; queue = queue[1:] {
		for _, child := range children(queue[0].pid, queue[0].threads) {
			s := readStat(child)
			u.processes += s.threads
			u.resident += s.resident
			u.cpu += s.cpu
			if maxProcesses > 0 && u.processes > maxProcesses {
				return u
			}
			queue = append(queue, family{child, s.threads})
		}
	}
	return u
}

// proportionalSetBelow returns the bytes of memory of the descendants of a process: what n
// processes have in common counts once.
func proportionalSetBelow(pid int) int64 {
	sum := int64(0)
	for _, child := range children(pid, 0) {
		sum += proportionalSet(child) + proportionalSetBelow(child)
	}
	return sum
}

// stat is what the kernel says of a process, nothing if it is gone.
type stat struct {
	parent, threads int
	cpu             time.Duration // with that of its children that it has waited for
	resident        int64         // bytes
}

// tick is the unit of times in a process's stat (USER_HZ), the same on every machine that
// Go runs on.
const tick = time.Second / 100

// readStat reads /proc/pid/stat: "pid (name) state ppid …", where the name may hold
// anything (https://docs.kernel.org/filesystems/proc.html).
func readStat(pid int) stat {
	text := read(procOf(pid) + "/stat")
	if text == nil {
		return stat{}
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // state is the first
	if len(fields) < 22 {
		return stat{}
	}
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(string(fields[i]), 10, 64) // 0 for what isn't a number
		return n
	}
	s := stat{parent: int(number(1)), threads: int(number(17)), resident: number(21) * int64(os.Getpagesize())}
	for i := 11; i < 15; i++ { // utime, stime, cutime, cstime
		s.cpu += time.Duration(number(i)) * tick
	}
	return s
}

// procOf returns the directory that describes a process.
func procOf(pid int) string { return "/proc/" + strconv.Itoa(pid) }

// listsChildren says whether the kernel lists the children of each thread; it may be built
// without.
var listsChildren = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
})

// children returns the processes that the threads of a process started or adopted. The
// number of its threads spares looking for them if it is 1; 0 if it is unknown.
func children(pid, threads int) []int {
	if !listsChildren() {
		return childrenAmongAll(pid)
	}
	tasks := procOf(pid) + "/task"
	if threads == 1 {
		return readIDs(nil, tasks+"/"+strconv.Itoa(pid)+"/children")
	}
	entries, err := os.ReadDir(tasks)
	if err != nil {
		return nil // it is gone
	}
	var all []int
	for _, e := range entries {
		all = readIDs(all, tasks+"/"+e.Name()+"/children")
	}
	return all
}

// readIDs appends the numbers in a file, none if it is gone.
func readIDs(ids []int, name string) []int {
	for field := range bytes.FieldsSeq(read(name)) {
		if id, err := strconv.Atoi(string(field)); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// childrenAmongAll looks for a process's children among all processes of the machine.
func childrenAmongAll(parent int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && readStat(pid).parent == parent {
			all = append(all, pid)
		}
	}
	return all
}

// read returns what a file of /proc has, nil if it is gone. Package os would make seven more
// system calls for each, to find out whether it can wait for the file.
func read(name string) []byte {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }() // it was only read
	text := make([]byte, 0, 1024)
	for {
		n, err := unix.Read(fd, text[len(text):cap(text)])
		if err != nil {
			return nil
		}
		if n == 0 {
			return text
		}
		text = slices.Grow(text[:len(text)+n], 512)
	}
}

// proportionalSet returns a process's share of its resident pages ("Pss: 123 kB"): what n
// processes have in common counts an n-th for each.
func proportionalSet(pid int) int64 {
	rollup, err := os.ReadFile(procOf(pid) + "/smaps_rollup")
	if err != nil {
		return readStat(pid).resident // old kernel, or not ours to look at
	}
	for line := range bytes.Lines(rollup) {
		fields := bytes.Fields(line)
		if len(fields) >= 2 && string(fields[0]) == "Pss:" {
			kib, _ := strconv.ParseInt(string(fields[1]), 10, 64)
			return kib << 10
		}
	}
	return readStat(pid).resident
}
