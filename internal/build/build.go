// Package build describes a build of a program: the values of `fulgurite version`. They
// come from what Go writes into each binary, so that no build has to be given its
// version. The package does not describe how a version of a model was made; package
// model's fingerprint does.
package build

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Build is one build of a program, as JSON of `fulgurite version --json`.
type Build struct {
	// Version is the tag of a release, a pseudo-version of the commit that was
	// built, or "(devel)" where there was no repository to ask.
	Version string `json:"version"`
	// Commit is the commit's digest, empty where there was no repository.
	Commit string `json:"commit,omitempty"`
	// Modified is true where files differed from the commit.
	Modified bool `json:"modified,omitempty"`
	// Go is the version of the compiler.
	Go   string `json:"go"`
	OS   string `json:"os"`
	Arch string `json:"arch"`
	// Kernels names the set of kernels that the native engine takes on this
	// processor.
	Kernels string `json:"kernels"`
}

// This returns the build of the running program.
func This(kernels string) Build {
	b := Build{Version: "(devel)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Kernels: kernels}
	facts, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if facts.Main.Version != "" {
		b.Version = facts.Main.Version
	}
	for _, s := range facts.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String returns the build for people, without a program's name.
func (b Build) String() string {
	commit := ""
	if b.Commit != "" {
		commit = fmt.Sprintf("commit %.12s, ", b.Commit)
		if b.Modified {
			commit = fmt.Sprintf("commit %.12s with changes, ", b.Commit)
		}
	}
	return fmt.Sprintf("%s (%s%s, %s/%s, kernels %s)", b.Version, commit, b.Go, b.OS, b.Arch, b.Kernels)
}
