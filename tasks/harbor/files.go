package harbor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// file is a file or a directory of a task. A link stands for what it leads to.
type file struct {
	path string // below the directory or the file that was read, with slashes; empty for itself
	from string // on this machine, without links
	info fs.FileInfo
}

// files reads a part of the task, such as environment/, with all that is below it. Links
// that lead to another place in the task are followed. A link that leads out of the task
// is an error that names it, and so is one from another part into tests/ or solution/,
// since what those hold is not for agents. Without the part there are no files.
func (t Task) files(part string) ([]file, error) {
	root, err := filepath.EvalSymlinks(t.Directory)
	if err != nil {
		return nil, err
	}
	r := fileReader{root: root, part: part}
	if _, err := os.Lstat(filepath.Join(root, part)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	err = r.read("", filepath.Join(root, part), nil)
	return r.list, err
}

// fileReader reads the files of a task's part.
type fileReader struct {
	root, part string
	list       []file
}

// read reads a file or a directory. above has the directories that it is in, without
// links.
func (r *fileReader) read(name, from string, above []string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		if from, err = r.follow(name, from); err != nil {
			return err
		}
		if info, err = os.Lstat(from); err != nil {
			return err
		}
	}
	switch {
	case info.Mode().IsRegular():
		r.list = append(r.list, file{name, from, info})
		return nil
	case !info.IsDir():
		return fmt.Errorf("%s is neither a file nor a directory nor a link", path.Join(r.part, name))
	case slices.Contains(above, from):
		return fmt.Errorf("%s is a link to a directory that it is in", path.Join(r.part, name))
	}
	r.list = append(r.list, file{name, from, info})
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := r.read(path.Join(name, e.Name()), filepath.Join(from, e.Name()), append(slices.Clip(above), from)); err != nil {
			return err
		}
	}
	return nil
}

// follow returns the path of what a link leads to.
func (r *fileReader) follow(name, from string) (string, error) {
	shown := path.Join(r.part, name)
	target, err := filepath.EvalSymlinks(from)
	if err != nil {
		to, _ := os.Readlink(from) // without it the text names only the link
		return "", fmt.Errorf("%s is a link to %s, which leads to nothing here", shown, to)
	}
	inside, err := filepath.Rel(r.root, target)
	if err != nil || !filepath.IsLocal(inside) {
		return "", fmt.Errorf("%s is a link to %s, which is not in the task's directory: put the file itself there", shown, target)
	}
	first, _, _ := strings.Cut(filepath.ToSlash(inside), "/")
	if first != r.part && (first == testsName || first == solutionName) {
		return "", fmt.Errorf("%s is a link into %s/, which agents must not see", shown, first)
	}
	return target, nil
}

// leavesContext names a file of environment/ that is a link to a place outside of it.
// docker's build doesn't follow such a link. It returns "" if there is none.
func (t Task) leavesContext() string {
	files, err := t.files(environmentName)
	if err != nil || len(files) == 0 {
		return "" // Check has read them
	}
	for _, f := range files {
		if inside, err := filepath.Rel(files[0].from, f.from); err != nil || !filepath.IsLocal(inside) {
			return fmt.Sprintf("%s is a link that leads out of %s/, which docker does not follow", path.Join(environmentName, f.path), environmentName)
		}
	}
	return ""
}

// ignored returns a function that reports whether docker leaves a file of environment/ out
// of what COPY and ADD see, by Dockerfile.dockerignore or .dockerignore.
func (t Task) ignored() (func(name string) (bool, error), error) {
	nothing := func(string) (bool, error) { return false, nil }
	for _, name := range []string{dockerfileName + ".dockerignore", ".dockerignore"} {
		f, err := os.Open(t.part(environmentName, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		patterns, err := ignorefile.ReadAll(f)
		_ = f.Close() // it was only read
		if err != nil {
			return nil, fmt.Errorf("%s/%s: %w", environmentName, name, err)
		}
		matcher, err := patternmatcher.New(patterns)
		if err != nil {
			return nil, fmt.Errorf("%s/%s: %w", environmentName, name, err)
		}
		return matcher.MatchesOrParentMatches, nil
	}
	return nothing, nil
}

// context returns the files of environment/ that a Dockerfile can copy, by their paths.
func (t Task) context() ([]file, error) {
	all, err := t.files(environmentName)
	if err != nil {
		return nil, err
	}
	ignored, err := t.ignored()
	if err != nil {
		return nil, err
	}
	var out []file
	keep := map[string]bool{} // directories with a file that is not left out
	for _, f := range slices.Backward(all) {
		no := false
		if f.path != "" {
			if no, err = ignored(filepath.FromSlash(f.path)); err != nil {
				return nil, err
			}
		}
		if no && !keep[f.path] {
			continue
		}
		for above := f.path; above != "" && above != "."; {
			above = path.Dir(above)
			keep[above] = true
		}
		out = append(out, f)
	}
	slices.Reverse(out)
	return out, nil
}

// below returns the files at and below a path, with their paths below it.
func below(files []file, name string) []file {
	var out []file
	for _, f := range files {
		switch rest, inside := strings.CutPrefix(f.path, name+"/"); {
		case name == "":
			out = append(out, f)
		case f.path == name:
			out = append(out, file{"", f.from, f.info})
		case inside:
			out = append(out, file{rest, f.from, f.info})
		}
	}
	return out
}

// copyFiles copies files to a place on this machine, with their modes.
func copyFiles(files []file, to string) error {
	for _, f := range files {
		target := filepath.Join(to, filepath.FromSlash(f.path))
		if f.info.IsDir() {
			if err := os.MkdirAll(target, 0o755); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := copyFile(f, target); err != nil {
			return err
		}
	}
	for _, f := range slices.Backward(files) { // last, so that a directory can be written until then
		if f.info.IsDir() {
			if err := os.Chmod(filepath.Join(to, filepath.FromSlash(f.path)), f.info.Mode().Perm()|0o700); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyFile(f file, to string) error {
	in, err := os.Open(f.from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) { // a later COPY replaces the file
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, f.info.Mode().Perm()|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), os.Chmod(to, f.info.Mode().Perm()|0o600))
}

// expander replaces variables in a word of a Dockerfile and removes its quotes, as docker
// does for all instructions but RUN, CMD and ENTRYPOINT.
type expander struct {
	escape rune
	value  func(name string) (text string, ok bool)

	rest []rune
}

// expand returns a word with its variables replaced.
func (e expander) expand(word string) (string, error) {
	e.rest = []rune(word)
	return e.until(0)
}

// until reads up to a closing character, or to the end if that is 0.
func (e *expander) until(end rune) (string, error) {
	var out strings.Builder
	for len(e.rest) > 0 {
		c := e.next()
		switch {
		case c == end && end != 0:
			return out.String(), nil
		case c == '\'':
			text, err := e.single()
			if err != nil {
				return "", err
			}
			out.WriteString(text)
		case c == '"':
			text, err := e.double()
			if err != nil {
				return "", err
			}
			out.WriteString(text)
		case c == '$':
			text, err := e.variable()
			if err != nil {
				return "", err
			}
			out.WriteString(text)
		case c == e.escape:
			if len(e.rest) > 0 {
				out.WriteRune(e.next())
			}
		default:
			out.WriteRune(c)
		}
	}
	if end != 0 {
		return "", fmt.Errorf("no closing %c", end)
	}
	return out.String(), nil
}

func (e *expander) next() rune {
	c := e.rest[0]
	e.rest = e.rest[1:]
	return c
}

// single reads the rest of a text in single quotes, in which nothing is special.
func (e *expander) single() (string, error) {
	for i, c := range e.rest {
		if c == '\'' {
			text := string(e.rest[:i])
			e.rest = e.rest[i+1:]
			return text, nil
		}
	}
	return "", errors.New("no closing '")
}

// double reads the rest of a text in double quotes.
func (e *expander) double() (string, error) {
	var out strings.Builder
	for len(e.rest) > 0 {
		c := e.next()
		switch {
		case c == '"':
			return out.String(), nil
		case c == '$':
			text, err := e.variable()
			if err != nil {
				return "", err
			}
			out.WriteString(text)
		case c == e.escape && len(e.rest) > 0:
			if after := e.rest[0]; after != '"' && after != '$' && after != e.escape {
				out.WriteRune(c)
			}
			out.WriteRune(e.next())
		default:
			out.WriteRune(c)
		}
	}
	return "", errors.New(`no closing "`)
}

// variable reads what follows a $.
func (e *expander) variable() (string, error) {
	if len(e.rest) == 0 || e.rest[0] != '{' {
		name := e.name()
		if name == "" {
			return "$", nil
		}
		text, _ := e.value(name)
		return text, nil
	}
	e.next()
	name := e.name()
	if name == "" || len(e.rest) == 0 {
		return "", errors.New("a variable without a name or without a closing }")
	}
	text, set := e.value(name)
	c := e.next()
	if c == '}' {
		return text, nil
	}
	if c == ':' && len(e.rest) > 0 {
		set = set && text != ""
		c = e.next()
	}
	if !strings.ContainsRune("-+?", c) {
		return "", fmt.Errorf("${%s%c…}: of the modifiers of a variable only -, + and ? are supported without a container", name, c)
	}
	word, err := e.until('}')
	switch {
	case err != nil:
		return "", err
	case c == '+' && set:
		return word, nil
	case c == '+':
		return "", nil
	case set:
		return text, nil
	case c == '?':
		return "", fmt.Errorf("the variable %s is not set: %s", name, word)
	}
	return word, nil
}

// name reads the name of a variable: a word, or one digit or sign.
func (e *expander) name() string {
	if len(e.rest) == 0 {
		return ""
	}
	if c := e.rest[0]; unicode.IsDigit(c) || strings.ContainsRune("@*#?!$", c) {
		return string(e.next())
	}
	n := 0
	for n < len(e.rest) && (e.rest[n] == '_' || e.rest[n] < unicode.MaxASCII && (unicode.IsLetter(e.rest[n]) || unicode.IsDigit(e.rest[n]))) {
		n++
	}
	name := string(e.rest[:n])
	e.rest = e.rest[n:]
	return name
}
