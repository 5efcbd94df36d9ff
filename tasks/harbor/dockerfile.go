package harbor

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// defaultDirectory is the agents' working directory if neither the image nor task.toml
// sets one.
const defaultDirectory = "/app"

// layout is an environment without its image: files to copy and their places.
type layout struct {
	directory string // in which the agent works
	copies    []copying
	folders   []string // directories to make, which are empty
	variables map[string]string
	needs     []string // instructions that need a container, each with its line
}

// copying is a file or a directory of environment/ and its path in the workspace.
type copying struct{ from, to string }

// layout returns where the environment's files are without a container: where its
// Dockerfile copies them or, if there is no Dockerfile, in the working directory.
func (t Task) layout() (layout, error) {
	l := layout{directory: "/", variables: map[string]string{}}
	folder := t.part(environmentName)
	f, err := os.Open(filepath.Join(folder, dockerfileName))
	if errors.Is(err, fs.ErrNotExist) {
		l.directory = defaultDirectory
		if t.Config.Environment.Directory != "" {
			l.directory = t.Config.Environment.Directory
		}
		if _, err := os.Stat(folder); err == nil {
			l.copies = append(l.copies, copying{folder, l.directory})
		}
		return l, l.check()
	}
	if err != nil {
		return l, err
	}
	defer f.Close()
	r := dockerfile{layout: &l, folder: folder}
	if err := r.read(f); err != nil {
		return l, fmt.Errorf("%s: %w", f.Name(), err)
	}
	switch {
	case t.Config.Environment.Directory != "":
		l.directory = t.Config.Environment.Directory
	case !r.placed:
		l.directory = defaultDirectory
	}
	return l, l.check()
}

// check adds to needs the directories that can't be made in a mount namespace.
func (l *layout) check() error {
	for _, to := range append([]string{l.directory}, l.destinations()...) {
		top := "/" + strings.SplitN(strings.TrimPrefix(path.Clean(to), "/"), "/", 2)[0]
		switch _, err := os.Stat(top); {
		case path.Clean(to) == "/":
			l.needs = append(l.needs, "the root of the file system as a working directory needs a container")
		case err == nil && to == l.directory && isDirectory(to):
			// The workspace covers it while it is open.
		case err == nil && !within(to, l.directory):
			l.needs = append(l.needs, fmt.Sprintf("%s lies in %s, which this machine has itself: that needs a container", to, top))
		case err == nil && to == l.directory:
			l.needs = append(l.needs, fmt.Sprintf("the working directory %s lies in %s, which this machine has itself: that needs a container", to, top))
		}
	}
	return nil
}

func (l *layout) destinations() []string {
	var out []string
	for _, c := range l.copies {
		out = append(out, c.to)
	}
	return append(out, l.folders...)
}

func isDirectory(path string) bool {
	stat, err := os.Stat(path)
	return err == nil && stat.IsDir()
}

// within reports whether a path is a directory or below it.
func within(name, directory string) bool {
	return name == directory || strings.HasPrefix(name, strings.TrimSuffix(directory, "/")+"/")
}

// dockerfile reads the instructions that need no image.
type dockerfile struct {
	layout *layout
	folder string
	placed bool // WORKDIR was seen
	from   bool // FROM was seen
}

func (d *dockerfile) read(f *os.File) error {
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	text, first := "", 0
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if text == "" {
			first = number
		}
		if part, more := strings.CutSuffix(line, `\`); more {
			text += part + " "
			continue
		}
		if err := d.instruction(text+line, first); err != nil {
			return err
		}
		text = ""
	}
	return lines.Err()
}

var folderCommand = regexp.MustCompile(`^mkdir( -p)?( /?[\w./-]+)+$`)

// instruction notes what one instruction does, or that it needs a container.
func (d *dockerfile) instruction(text string, line int) error {
	name, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	words := strings.Fields(rest)
	needs := func() {
		d.layout.needs = append(d.layout.needs, fmt.Sprintf("environment/Dockerfile:%d %s needs a container", line, strings.ToUpper(name)))
	}
	switch strings.ToUpper(name) {
	case "FROM":
		if d.from {
			needs()
		}
		d.from = true
	case "WORKDIR":
		d.layout.directory, d.placed = d.absolute(d.expand(rest)), true
		d.layout.folders = append(d.layout.folders, d.layout.directory)
	case "ENV", "ARG":
		if strings.ToUpper(name) == "ENV" && len(words) > 1 && !strings.Contains(words[0], "=") {
			d.layout.variables[words[0]] = d.expand(strings.Join(words[1:], " "))
			return nil
		}
		for _, word := range words {
			key, value, _ := strings.Cut(word, "=")
			d.layout.variables[key] = d.expand(strings.Trim(value, `"'`))
		}
	case "COPY", "ADD":
		return d.copy(strings.ToUpper(name), words, needs, line)
	case "RUN":
		if !folderCommand.MatchString(rest) {
			needs()
			return nil
		}
		for _, word := range words[1:] {
			if word != "-p" {
				d.layout.folders = append(d.layout.folders, d.absolute(word))
			}
		}
	case "USER":
		if rest != "root" && rest != "0" {
			needs()
		}
	case "LABEL", "MAINTAINER", "EXPOSE", "CMD", "ENTRYPOINT", "STOPSIGNAL", "VOLUME": // these have no effect here
	default:
		needs()
	}
	return nil
}

// copy notes a COPY or an ADD of files of environment/.
func (d *dockerfile) copy(name string, words []string, needs func(), line int) error {
	for len(words) > 0 && strings.HasPrefix(words[0], "--") {
		if !strings.HasPrefix(words[0], "--chown=") && words[0] != "--link" {
			needs()
			return nil
		}
		words = words[1:]
	}
	if len(words) < 2 || strings.HasPrefix(words[0], "[") || strings.HasPrefix(words[0], "<<") {
		needs()
		return nil
	}
	to := d.expand(words[len(words)-1])
	for _, word := range words[:len(words)-1] {
		from := d.expand(word)
		if name == "ADD" && (strings.Contains(from, "://") || strings.Contains(filepath.Base(from), ".t")) {
			needs()
			return nil
		}
		found, err := filepath.Glob(filepath.Join(d.folder, path.Clean("/"+from)))
		if err != nil || len(found) == 0 {
			return fmt.Errorf("line %d: %s is not in %s", line, from, d.folder)
		}
		for _, one := range found {
			target := d.absolute(to)
			if !isDirectory(one) && (strings.HasSuffix(to, "/") || to == "." || len(found)+len(words) > 3) {
				target = path.Join(target, filepath.Base(one))
			}
			d.layout.copies = append(d.layout.copies, copying{one, target})
		}
	}
	return nil
}

func (d *dockerfile) absolute(name string) string {
	if strings.HasPrefix(name, "/") {
		return path.Clean(name)
	}
	return path.Join(d.layout.directory, name)
}

func (d *dockerfile) expand(text string) string {
	return os.Expand(strings.Trim(text, `"'`), func(name string) string { return d.layout.variables[name] })
}
