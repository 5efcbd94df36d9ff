package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Arithmetic is the family of generated tasks.
const Arithmetic = "arithmetic"

// Families of published data sets. Their files are read in the layouts in which they are
// published.
const (
	Spider   = "spider"
	GSM8K    = "gsm8k"
	MuSiQue  = "musique"
	HotpotQA = "hotpotqa"
	TwoWiki  = "2wikimultihopqa"
)

// Harbor is the family of directories in Harbor's format. Each directory is a task with
// its own tests.
const Harbor = "harbor"

// Command is the family of tasks that the program in tasks.command lists.
const Command = "command"

// DataSets returns the families of published data sets.
func DataSets() []string { return []string{Spider, GSM8K, MuSiQue, HotpotQA, TwoWiki} }

// dataSetOnHub recognizes hf:OWNER/NAME and the address of a data set's page. A spec has made
// the path absolute.
var dataSetOnHub = regexp.MustCompile(`(?:^|/)(?:hf:/{0,2}|(?:https?:/{1,2})?huggingface\.co/)(?:datasets/)?([\w.-]+(?:/[\w.-]+)?)`)

// FamilyRemedy returns what to do about a missing file whose path begins like a source of
// an unknown family, such as "spyder:dev.json": it lists the families. For the name of a data
// set on the hub it says how to get a file. For all other paths it returns "".
func FamilyRemedy(path string) string {
	if m := dataSetOnHub.FindStringSubmatch(path); m != nil {
		return fmt.Sprintf(`data sets on the hub are not downloaded: save a split as a file of JSON objects, as in datasets.load_dataset("%s", split="train").to_json(FILE), and name that file`, m[1])
	}
	before, _, named := strings.Cut(path, ":")
	before = before[strings.LastIndexByte(before, '/')+1:] // a spec has made the path absolute
	if !named || len(before) < 2 || strings.Trim(strings.ToLower(before), "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
		return ""
	}
	families := append(DataSets(), Harbor, Command, Arithmetic)
	remedy := ""
	if near, ok := nearest(before, families); ok {
		remedy = fmt.Sprintf("did you mean %s:? ", near)
	}
	return fmt.Sprintf("no source is called %q: %sThere are %s, and the paths of JSONL files", before, remedy, strings.Join(families, ", "))
}

// Source says where tasks or demonstrations are read from: a file, a program or a
// generator. "<family>:<path>" is a file of a data set or a directory in Harbor's format.
// "arithmetic:<split>[:<count>]" are generated tasks, and "arithmetic" generated
// demonstrations. "command:<split>" are tasks that a program lists. A file with such a
// name is written "./arithmetic".
type Source struct {
	Path   string // of the file or directory; empty for a generator and a program
	Family string // of the generator, the data set, Harbor or Command; empty for a file in Fulgurite's own format
	Split  string // for a generator "train", "gate" or "test", or empty for demonstrations; for a program any name
	Count  int    // number of generated tasks; 0 means the default of the family
}

// Generated reports whether a generator makes the tasks.
func (s Source) Generated() bool { return s.Path == "" && s.Family != "" }

// String returns the text of the source, in the form that ParseSource reads.
func (s Source) String() string {
	switch {
	case s.Family == "":
		return s.Path
	case s.Path != "":
		return s.Family + ":" + s.Path
	case s.Split == "":
		return s.Family
	case s.Count == 0:
		return s.Family + ":" + s.Split
	}
	return fmt.Sprintf("%s:%s:%d", s.Family, s.Split, s.Count)
}

// ParseSource reads the text of a source. It doesn't look for the file.
func ParseSource(text string) (Source, error) {
	family, path, named := strings.Cut(text, ":")
	if named && slices.Contains(DataSets(), family) {
		if path == "" {
			return Source{Family: family}, fmt.Errorf("%q names no file: want %s:FILE", text, family)
		}
		return Source{Family: family, Path: path}, nil
	}
	if named && family == Harbor {
		if path == "" {
			return Source{Family: family}, fmt.Errorf("%q names no directory: want %s:DIRECTORY", text, family)
		}
		return Source{Family: family, Path: path}, nil
	}
	if named && family == Command {
		return Source{Family: Command, Split: path}, nil
	}
	if family != Arithmetic {
		return Source{Path: text}, nil
	}
	return parseGenerator(text)
}

// generatorSplits returns the splits that a generator makes.
func generatorSplits() []string { return []string{"train", "gate", "test"} }

func parseGenerator(text string) (Source, error) {
	parts := strings.Split(text, ":")
	source := Source{Family: parts[0]}
	if len(parts) > 3 {
		return source, fmt.Errorf(`generator %q has more than "arithmetic:<split>:<count>"`, text)
	}
	if len(parts) > 1 {
		source.Split = parts[1]
		if splits := generatorSplits(); !slices.Contains(splits, source.Split) {
			return source, fmt.Errorf("generator %q has no split %q: want %s", text, source.Split, strings.Join(splits, ", "))
		}
	}
	if len(parts) > 2 {
		count, err := strconv.Atoi(parts[2])
		if err != nil || count < 1 {
			return source, fmt.Errorf("generator %q: the count %q is not a whole number of at least 1", text, parts[2])
		}
		source.Count = count
	}
	return source, nil
}

// VersionName is the name of a version of a run in the same store.
type VersionName struct {
	Run string
	// Policy is one of several policies that the run trains. It is empty for the version of
	// all of them together, and for that of the only policy.
	Policy string
	Number int
}

// ParseVersion reads RUN@NUMBER or RUN:POLICY@NUMBER, the name of a version of a run.
func ParseVersion(text string) (VersionName, error) {
	name, digits, _ := strings.Cut(text, "@")
	run, policy, named := strings.Cut(name, ":")
	number, err := strconv.Atoi(digits)
	if err != nil || run == "" || number < 0 || strconv.Itoa(number) != digits || named && !policyName.MatchString(policy) {
		return VersionName{}, fmt.Errorf("%q is not a version", text)
	}
	if policy == "main" {
		policy = "" // it is all policies together
	}
	if why, reserved := reservedPolicies[policy]; reserved {
		return VersionName{}, fmt.Errorf("%q is not a version of a policy: %s", text, why)
	}
	return VersionName{Run: run, Policy: policy, Number: number}, nil
}

// sameTasks reports whether two sources certainly have tasks in common.
func sameTasks(a, b string) bool {
	x, errX := ParseSource(a)
	y, errY := ParseSource(b)
	if errX != nil || errY != nil {
		return false
	}
	return x.Path == y.Path && x.Family == y.Family && x.Split == y.Split
}

// source checks the text of a source. Demonstrations must not name a split.
func (f *Faults) source(key, text string, demonstrations bool) {
	if text == "" {
		return
	}
	source, err := ParseSource(text)
	switch {
	case err != nil && source.Family == Harbor:
		f.add(key, "give the path of a directory of tasks", "%v", err)
	case err != nil && source.Family != Arithmetic:
		f.add(key, "give the path of the data set's file", "%v", err)
	case err != nil:
		f.add(key, `a generator is "arithmetic:<split>" or "arithmetic:<split>:<count>"`, "%v", err)
	case demonstrations && source.Path != "" && source.Family != "":
		f.add(key, "give the path of a JSONL file of dialogs", "%s has tasks, not demonstrations", text)
	case demonstrations && source.Family == Command:
		f.add(key, "give the path of a JSONL file of dialogs", "a program lists tasks, not demonstrations")
	case demonstrations && source.Split != "":
		f.add(key, `give "arithmetic"`, "demonstrations always come from the train split")
	case !demonstrations && source.Generated() && source.Split == "":
		split := strings.TrimPrefix(key, "tasks.")
		if !slices.Contains(generatorSplits(), split) {
			split = "test" // tasks.validation, or a stage
		}
		f.add(key, fmt.Sprintf(`give "%s:%s"`, source.Family, split), "%q names no split", text)
	}
}

// checkHarbor checks the grader, the agent and the container of tasks in Harbor's format.
// These tasks have their own tests.
func (t Tasks) checkHarbor(f *Faults, g Grader, a Agent) {
	found := false
	for _, split := range SplitNames() {
		source, _ := t.Split(split)
		ours := strings.HasPrefix(source, Harbor+":")
		found = found || ours
		switch {
		case ours && g.Type != GraderHarbor:
			f.add("grader.type", `give "harbor"`, `%q, and tasks.%s has tests of its own`, g.Type, split)
		case !ours && source != "" && g.Type == GraderHarbor:
			f.add("tasks."+split, `give "harbor:DIRECTORY"`, `%s has no tests for grader.type "harbor"`, source)
		}
	}
	if g.Type == GraderHarbor && len(a.Command) == 0 {
		f.add("agent.command", "give the agent's program and its arguments", `missing, and with grader.type "harbor" the worker prepares the place where it runs`)
	}
	if g.Type == GraderHarbor {
		why := Spec{Grader: g}.forbidsSandbox()
		f.unused("agent.sandbox", a.isolated(), why)
		if a.Sandbox == "" && len(a.After) == 0 { // else they are refused already
			a.refuseIsolationKeys(f, why+": remove the key", unusedKey)
		}
	}
	if t.Harbor == nil {
		return
	}
	f.unused("tasks.harbor", !found, `no source is "harbor:…"`)
	if t.Harbor.Container != "" {
		f.choice("tasks.harbor.container", t.Harbor.Container)
	}
	if name := t.Harbor.Reward; name != strings.TrimSpace(name) {
		f.add("tasks.harbor.reward", "give the name of a reward in reward.json", "%q has blanks at its ends", name)
	}
}

// checkProgram checks the program that lists tasks and grades.
func (t Tasks) checkProgram(f *Faults, g Grader, train []string) {
	f.program("tasks.command", t.Command)
	lists := slices.ContainsFunc(append(slices.Clone(train), t.Gate, t.Test, t.Validation), func(source string) bool { return strings.HasPrefix(source, Command+":") })
	if len(t.Command) == 0 {
		const remedy = "give the program and its arguments"
		switch {
		case lists:
			f.add("tasks.command", remedy, `missing, and it has to list the tasks of "command:…"`)
		case g.Type == GraderTasks:
			f.add("tasks.command", remedy, `missing, and with grader.type "tasks" it grades`)
		}
		f.unused("tasks.directory", t.Directory != "", "only tasks.command has one")
	} else if !lists {
		f.unused("tasks.command", g.Type != GraderTasks, `no source is "command:…", and grader.type is not "tasks"`)
	}
}

// Program returns t without its splits. It keeps the program only if the program lists the
// source or grades.
func (t Tasks) Program(g Grader, source string) Tasks {
	if g.Type != GraderTasks && !strings.HasPrefix(source, Command+":") {
		return Tasks{Harbor: t.Harbor}
	}
	return Tasks{Command: t.Command, Directory: t.Directory, Harbor: t.Harbor}
}

// Ways in which grader.extract finds the answer in a result.
const (
	ExtractLastNumber = "last_number"
	ExtractBoxed      = "boxed"
	ExtractAfter      = "after"
	ExtractRegex      = "regex"
)

// Extraction is a grader.extract that was parsed. The zero value extracts nothing.
type Extraction struct {
	Kind    string         // one of the constants above, or empty
	Text    string         // with ExtractAfter
	Pattern *regexp.Regexp // with ExtractRegex
}

// ParseExtract parses a grader.extract: "last_number", "boxed", "after TEXT" or "regex
// PATTERN". TEXT and PATTERN may be in double quotes. PATTERN has Go's syntax of regular
// expressions (RE2).
func ParseExtract(text string) (Extraction, error) {
	kind, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	rest = strings.TrimSpace(rest)
	if len(rest) > 1 && rest[0] == '"' && rest[len(rest)-1] == '"' {
		inner := rest[1 : len(rest)-1]
		if unquoted, err := strconv.Unquote(rest); err == nil && kind == ExtractAfter {
			inner = unquoted
		}
		rest = inner
	}
	e := Extraction{Kind: kind}
	switch {
	case kind == "":
		return Extraction{}, nil
	case !slices.Contains([]string{ExtractLastNumber, ExtractBoxed, ExtractAfter, ExtractRegex}, kind):
		return e, fmt.Errorf("%q finds nothing", text)
	case kind == ExtractLastNumber || kind == ExtractBoxed:
		if rest != "" {
			return e, fmt.Errorf("something follows %q", kind)
		}
	case rest == "":
		return e, fmt.Errorf("%q needs a text behind it, in quotes if it has a #, where YAML begins a comment", kind)
	case kind == ExtractAfter:
		e.Text = rest
	default:
		pattern, err := regexp.Compile(rest)
		if err != nil {
			return e, fmt.Errorf("not a regular expression: %w", err)
		}
		e.Pattern = pattern
	}
	return e, nil
}

// checkExtract checks how the answer is found in a result.
func (g Grader) checkExtract(f *Faults) {
	if g.Extract == "" {
		return
	}
	if !slices.Contains([]string{GraderNumeric, GraderExact, GraderQA}, g.Type) {
		f.unused("grader.extract", true, `only grader.type "numeric", "exact" and "qa" look for an answer in the result`)
		return
	}
	const remedy = `give boxed, after "TEXT" or regex "PATTERN", or last_number with grader.type "numeric"`
	switch e, err := ParseExtract(g.Extract); {
	case err != nil:
		f.add("grader.extract", remedy, "%s", err.Error())
	case e.Kind == ExtractLastNumber && g.Type != GraderNumeric:
		f.add("grader.extract", remedy, "last_number is only for grader.type \"numeric\"")
	}
}
