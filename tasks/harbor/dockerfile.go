package harbor

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"unicode"

	"github.com/fulgurite/fulgurite/internal/textfile"
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

// copying are a file or a directory of environment/, with all that is below it, and its
// path in the workspace.
type copying struct {
	files []file
	to    string
}

// layout returns where the environment's files are without a container: where its
// Dockerfile copies them or, if there is no Dockerfile, in the working directory.
func (t Task) layout() (layout, error) {
	l := layout{directory: "/", variables: map[string]string{}}
	files, err := t.context()
	if err != nil {
		return l, err
	}
	text, err := textfile.Read(t.part(environmentName, dockerfileName))
	if errors.Is(err, fs.ErrNotExist) {
		l.directory = defaultDirectory
		if t.Config.Environment.Directory != "" {
			l.directory = t.Config.Environment.Directory
		}
		if len(files) > 0 {
			l.copies = append(l.copies, copying{files, l.directory})
		}
		return l, l.check()
	}
	if err != nil {
		return l, err
	}
	r := dockerfile{layout: &l, files: files, arguments: map[string]string{}, global: map[string]string{}, directories: map[string]bool{"/": true}}
	if err := r.read(bytes.NewReader(text)); err != nil {
		return l, fmt.Errorf("%s/%s:%w", environmentName, dockerfileName, err)
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
	files  []file // of the context
	escape rune
	// arguments are the values of ARG in the stage. Those before FROM are global: a stage
	// has them only if it names them again.
	arguments, global map[string]string
	directories       map[string]bool // those that exist, with slashes
	placed            bool            // WORKDIR was seen
	from              bool            // FROM was seen
}

func (d *dockerfile) read(r io.Reader) error {
	list, escape, err := readInstructions(r)
	if err != nil {
		return fmt.Errorf(" %w", err)
	}
	d.escape = escape
	for _, i := range list {
		if err := d.instruction(i); err != nil {
			return fmt.Errorf("%d: %s: %w", i.line, i.name, err)
		}
	}
	if !d.from {
		return errors.New("1: no FROM: docker builds no image without it")
	}
	return nil
}

var folderCommand = regexp.MustCompile(`^mkdir( -p)?( /?[\w./-]+)+$`)

// needs notes that an instruction needs a container.
func (d *dockerfile) needs(i instruction, why string) {
	d.layout.needs = append(d.layout.needs, fmt.Sprintf("environment/Dockerfile:%d %s needs a container%s", i.line, i.name, why))
}

// instruction notes what one instruction does, or that it needs a container.
func (d *dockerfile) instruction(i instruction) error {
	if !d.from && i.name != "FROM" && i.name != "ARG" {
		return errors.New("it comes before FROM, which docker refuses")
	}
	switch i.name {
	case "FROM":
		if d.from {
			d.needs(i, "")
		}
		d.from = true
	case "WORKDIR":
		to, err := d.expand(i.rest)
		if err != nil {
			return err
		}
		if to == "" {
			return errors.New("it names no directory")
		}
		d.layout.directory, d.placed = d.absolute(to), true
		d.folder(d.layout.directory)
	case "ENV":
		return d.env(i)
	case "ARG":
		return d.arg(i)
	case "COPY", "ADD":
		return d.copy(i)
	case "RUN":
		d.run(i)
	case "USER":
		who, err := d.expand(i.rest)
		if err != nil {
			return err
		}
		if name, group, _ := strings.Cut(who, ":"); !isRoot(name) || group != "" && !isRoot(group) {
			d.needs(i, "")
		}
	case "LABEL", "MAINTAINER", "EXPOSE", "CMD", "ENTRYPOINT", "STOPSIGNAL", "VOLUME": // these have no effect here
	case "SHELL", "HEALTHCHECK", "ONBUILD":
		d.needs(i, "")
	default:
		return errors.New("docker has no such instruction")
	}
	return nil
}

func isRoot(name string) bool { return name == "root" || name == "0" }

func (d *dockerfile) run(i instruction) {
	if i.here || len(i.flags) > 0 || !folderCommand.MatchString(strings.Join(strings.Fields(i.rest), " ")) {
		d.needs(i, "")
		return
	}
	for _, word := range strings.Fields(i.rest)[1:] {
		if word != "-p" {
			d.folder(d.absolute(word))
		}
	}
}

// folder notes a directory that an instruction makes.
func (d *dockerfile) folder(name string) {
	d.layout.folders = append(d.layout.folders, name)
	d.exists(name)
}

// exists notes that a directory exists, and the directories that it is in.
func (d *dockerfile) exists(name string) {
	for ; name != "/" && name != "."; name = path.Dir(name) {
		d.directories[name] = true
	}
}

// env notes variables. All values of an instruction see the variables as they were before
// it.
func (d *dockerfile) env(i instruction) error {
	words := wordsOf(i.rest, d.escape)
	if len(words) == 0 {
		return errors.New("it names no variable")
	}
	if !strings.Contains(words[0], "=") { // the older form, with one variable
		name, rest := cutSpace(i.rest)
		value, err := d.expand(rest)
		if err != nil {
			return err
		}
		if rest == "" {
			return fmt.Errorf("%s has no value", name)
		}
		d.layout.variables[name] = value
		return nil
	}
	set := map[string]string{}
	for _, word := range words {
		name, value, ok := strings.Cut(word, "=")
		if !ok || name == "" {
			return fmt.Errorf("%s is not NAME=VALUE", word)
		}
		var err error
		if set[name], err = d.expand(value); err != nil {
			return err
		}
	}
	for name, value := range set {
		d.layout.variables[name] = value
	}
	return nil
}

// arg notes variables that only the Dockerfile itself sees.
func (d *dockerfile) arg(i instruction) error {
	for _, word := range wordsOf(i.rest, d.escape) {
		name, value, given := strings.Cut(word, "=")
		value, err := d.expand(value)
		if err != nil {
			return err
		}
		if !d.from {
			d.global[name] = value
			continue
		}
		if !given {
			var known bool
			if value, known = d.global[name]; !known {
				value = platform(name)
			}
		}
		d.arguments[name] = value
	}
	return nil
}

// platform returns the value of an argument that docker sets by itself.
func platform(name string) string {
	switch name {
	case "TARGETPLATFORM", "BUILDPLATFORM":
		return "linux/" + runtime.GOARCH
	case "TARGETOS", "BUILDOS":
		return "linux"
	case "TARGETARCH", "BUILDARCH":
		return runtime.GOARCH
	}
	return ""
}

// copy notes a COPY or an ADD of files of environment/.
func (d *dockerfile) copy(i instruction) error {
	for _, flag := range i.flags {
		if !strings.HasPrefix(flag, "--chown=") && flag != "--link" && flag != "--link=true" && flag != "--link=false" {
			d.needs(i, ": "+flag)
			return nil
		}
	}
	if i.here {
		d.needs(i, "")
		return nil
	}
	var words []string
	for _, word := range listOf(i.rest) {
		expanded, err := d.expand(word)
		if err != nil {
			return err
		}
		words = append(words, expanded)
	}
	if len(words) < 2 {
		return errors.New("it names no destination")
	}
	sources, to := words[:len(words)-1], words[len(words)-1]
	folder := strings.HasSuffix(to, "/") || path.Base(to) == "." || path.Base(to) == ".."
	if len(sources) > 1 && !folder {
		return fmt.Errorf("with several sources the destination %s has to end with /", to)
	}
	for _, source := range sources {
		if i.name == "ADD" && (strings.Contains(source, "://") || strings.HasPrefix(source, "git@")) {
			d.needs(i, "")
			return nil
		}
		found, err := d.match(source)
		if err != nil {
			return err
		}
		for _, name := range found {
			if err := d.copyOne(i, name, d.absolute(to), folder); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyOne notes that a file or a directory of the context is copied. A file gets into a
// directory if the destination is written as one or exists as one, and the content of a
// directory gets into the destination itself.
func (d *dockerfile) copyOne(i instruction, name, to string, folder bool) error {
	files := below(d.files, name)
	if files[0].info.IsDir() {
		d.exists(to)
		for _, f := range files {
			if f.info.IsDir() {
				d.exists(path.Join(to, f.path))
			}
		}
		d.layout.copies = append(d.layout.copies, copying{files, to})
		return nil
	}
	if i.name == "ADD" {
		packed, err := archive(files[0].from)
		if err != nil {
			return err
		}
		if packed {
			d.needs(i, ": it unpacks "+name)
			return nil
		}
	}
	if folder || d.directories[to] {
		to = path.Join(to, path.Base(name))
	}
	d.exists(path.Dir(to))
	d.layout.copies = append(d.layout.copies, copying{files, to})
	return nil
}

// match returns the paths in the context that a source of COPY names.
func (d *dockerfile) match(source string) ([]string, error) {
	pattern := strings.TrimPrefix(path.Clean("/"+source), "/")
	var out []string
	for _, f := range d.files {
		if f.path == pattern {
			return []string{f.path}, nil
		}
		matched, err := path.Match(pattern, f.path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		if matched && f.path != "" {
			out = append(out, f.path)
		}
	}
	if len(out) == 0 && !strings.ContainsAny(pattern, "*?[") { // docker lets a pattern match nothing
		return nil, fmt.Errorf("%s is not in %s, or .dockerignore leaves it out", source, environmentName)
	}
	return out, nil
}

// archive reports whether a file is one that ADD may unpack.
func archive(name string) (bool, error) {
	f, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	begin := make([]byte, 512)
	n, err := io.ReadFull(f, begin)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return false, err
	}
	begin = begin[:n]
	for _, magic := range []string{"\x1f\x8b", "BZh", "\xfd7zXZ\x00", "\x28\xb5\x2f\xfd"} {
		if bytes.HasPrefix(begin, []byte(magic)) {
			return true, nil
		}
	}
	return len(begin) > 262 && bytes.HasPrefix(begin[257:], []byte("ustar")), nil
}

func (d *dockerfile) absolute(name string) string {
	if strings.HasPrefix(name, "/") {
		return path.Clean(name)
	}
	return path.Join(d.layout.directory, name)
}

// expand replaces the variables of a word. The search path that an image would have is
// this machine's.
func (d *dockerfile) expand(word string) (string, error) {
	e := expander{escape: d.escape, value: func(name string) (string, bool) {
		if value, ok := d.layout.variables[name]; ok {
			return value, true
		}
		if value, ok := d.arguments[name]; ok {
			return value, true
		}
		if name == pathVariable {
			return os.Getenv(name), true
		}
		if !d.from {
			value, ok := d.global[name]
			return value, ok
		}
		return "", false
	}}
	return e.expand(word)
}

// instruction is an instruction of a Dockerfile. Its form is defined in
// https://docs.docker.com/reference/dockerfile/.
type instruction struct {
	line  int    // where it begins, from 1
	name  string // in capitals
	flags []string
	rest  string // what follows the flags
	// here is true if the instruction has here-documents, whose lines are left out.
	here bool
}

var (
	directive    = regexp.MustCompile(`^#[ \t]*([A-Za-z]+)[ \t]*=[ \t]*(.+?)[ \t]*$`)
	hereDocument = regexp.MustCompile(`<<(-?)(["']?)([A-Za-z_][A-Za-z0-9_]*)(["']?)`)
)

// readInstructions reads a Dockerfile. escape is the character that escapes others.
func readInstructions(r io.Reader) (list []instruction, escape rune, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	p := instructions{escape: '\\'}
	directives := true
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		if number == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		if directives {
			if m := directive.FindStringSubmatch(line); m != nil {
				// docker takes an unknown directive for a comment, after which there are none.
				directives = slices.Contains([]string{"syntax", "escape", "check"}, strings.ToLower(m[1]))
				if strings.EqualFold(m[1], "escape") {
					if m[2] != `\` && m[2] != "`" {
						return nil, 0, fmt.Errorf("line %d: the escape character is %q: docker allows \\ and `", number, m[2])
					}
					p.escape = rune(m[2][0])
				}
				continue
			}
			directives = false
		}
		p.add(line, number)
	}
	p.end()
	return p.list, p.escape, lines.Err()
}

// instructions collects instructions from lines.
type instructions struct {
	list   []instruction
	escape rune
	text   string // of an instruction that the next line continues
	first  int    // its line
	open   bool
	here   []string // words that end here-documents which are open
	tabs   []bool   // whether tabs before these words are ignored
}

func (p *instructions) add(line string, number int) {
	if len(p.here) > 0 {
		if p.tabs[0] {
			line = strings.TrimLeft(line, "\t")
		}
		if line == p.here[0] {
			p.here, p.tabs = p.here[1:], p.tabs[1:]
		}
		return
	}
	trimmed := strings.TrimSpace(line)
	if trimmed == "" || strings.HasPrefix(trimmed, "#") { // comments and blank lines don't end an instruction
		return
	}
	if !p.open {
		p.text, p.first, p.open = "", number, true
		line = strings.TrimLeftFunc(line, unicode.IsSpace)
	}
	if part, more := strings.CutSuffix(strings.TrimRight(line, " \t\r"), string(p.escape)); more {
		p.text += part
		return
	}
	p.text += line
	p.end()
}

// end ends an instruction.
func (p *instructions) end() {
	if !p.open {
		return
	}
	p.open = false
	name, rest := cutSpace(strings.TrimSpace(p.text))
	i := instruction{line: p.first, name: strings.ToUpper(name), rest: rest}
	for strings.HasPrefix(i.rest, "--") {
		var flag string
		flag, i.rest = cutSpace(i.rest)
		if flag == "--" {
			break
		}
		i.flags = append(i.flags, flag)
	}
	if i.name == "RUN" || i.name == "COPY" || i.name == "ADD" {
		for _, m := range hereDocument.FindAllStringSubmatch(i.rest, -1) {
			if m[2] == m[4] {
				p.here, p.tabs, i.here = append(p.here, m[3]), append(p.tabs, m[1] != ""), true
			}
		}
	}
	p.list = append(p.list, i)
}

// cutSpace returns the first word of a text and what follows the blanks after it.
func cutSpace(text string) (word, rest string) {
	at := strings.IndexFunc(text, unicode.IsSpace)
	if at < 0 {
		return text, ""
	}
	return text[:at], strings.TrimLeftFunc(text[at:], unicode.IsSpace)
}

// listOf returns the texts of a JSON list or, if the text is none, the words between
// blanks.
func listOf(text string) []string {
	var out []string
	if strings.HasPrefix(text, "[") && json.Unmarshal([]byte(text), &out) == nil {
		return out
	}
	return strings.Fields(text)
}

// wordsOf splits a text at blanks. Blanks in quotes and escaped ones belong to a word,
// which keeps its quotes and escapes.
func wordsOf(text string, escape rune) []string {
	var words []string
	var word strings.Builder
	var quote rune
	escaped, inside := false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case c == escape:
			escaped, inside = true, true
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote, inside = c, true
		case unicode.IsSpace(c):
			if inside {
				words = append(words, word.String())
				word.Reset()
				inside = false
			}
			continue
		default:
			inside = true
		}
		word.WriteRune(c)
	}
	if inside {
		words = append(words, word.String())
	}
	return words
}
