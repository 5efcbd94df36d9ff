package spec

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// queueBytes is the longest name of a task queue.
const queueBytes = 200

// ownQueues are the task queues of Fulgurite's own activities and workflows.
func ownQueues() []string { return []string{"training", "train-gpu"} }

// CheckQueue says what is wrong with the name of a task queue for agents, and what to do.
// Both are empty if nothing is. A worker gets several names separated by commas, so a name
// contains none.
func CheckQueue(name string) (wrong, remedy string) {
	switch {
	case strings.TrimSpace(name) == "":
		return "no name", "give the name of a task queue"
	case strings.TrimSpace(name) != name:
		return "white space around the name", "remove it"
	case strings.ContainsRune(name, ',') || strings.ContainsFunc(name, unicode.IsControl):
		return "a comma or a control character in the name", "give a name without it"
	case len(name) > queueBytes:
		return "the name is too long", "give a name of at most 200 bytes"
	case strings.HasPrefix(name, "/_sys/"):
		return "Temporal keeps names with /_sys/ for itself", "give another name"
	case slices.Contains(ownQueues(), name):
		return "Fulgurite's own workers poll this queue for other work", "give another name"
	}
	return "", ""
}

// ParseQueues returns the names of a list of task queues for agents, without the white
// space around them and each once.
func ParseQueues(names []string) ([]string, error) {
	var all []string
	for _, name := range names {
		name = strings.TrimSpace(name)
		if wrong, remedy := CheckQueue(name); wrong != "" {
			return nil, fmt.Errorf("queue %q: %s; %s", name, wrong, remedy)
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all, nil
}

func (f *Faults) queue(key, name string) {
	if wrong, remedy := CheckQueue(name); wrong != "" {
		f.add(key, remedy, "%s", wrong)
	}
}
