package spec

import (
	"fmt"
	"net/url"
	"strings"
)

// Exact reports whether the server takes and gives token ids, without which
// weights can't be trained.
func (s Server) Exact() bool { return s.Type == ServerVLLM || s.Type == ServerSGLang }

// Trainable reports, as *Faults, why weights can't be trained with s although it can
// be tried and evaluated.
func (s Spec) Trainable() error {
	server := s.WithDefaults().Sampling.Server
	f := &Faults{}
	switch {
	case server == nil:
	case !server.Exact():
		f.add("sampling.server.type", "give vllm or sglang, or leave sampling.server out",
			"%s gives no token ids, and text that is tokenized anew is not what was sampled", server.Type)
	case server.Versions == VersionsNone:
		f.add("sampling.server.versions", "give adapters or reload", "the server would never sample from what was trained")
	}
	return f.err()
}

// defaultVersions is how the type of server changes weights.
func (s Server) defaultVersions() string {
	switch s.Type {
	case ServerVLLM:
		return VersionsAdapters
	case ServerSGLang:
		return VersionsReload
	}
	return VersionsNone
}

func (s Server) check(f *Faults, all Spec) {
	const at = "sampling.server."
	if s.Type == "" {
		f.add(at+"type", "give one of "+strings.Join(choices(at+"type"), ", "), "missing")
	} else {
		f.choice(at+"type", s.Type)
	}
	if len(s.URLs) == 0 {
		f.add(at+"urls", "give the addresses of the servers", "missing")
	}
	for i, u := range s.URLs {
		f.url(fmt.Sprintf("%surls[%d]", at, i), u)
	}
	if s.Model == "" {
		f.add(at+"model", "give the model's name at the server", "missing")
	}
	f.choice(at+"versions", s.Versions)
	if s.Versions == VersionsReload && all.Training.Lag > 0 {
		f.add("training.lag", `give 0, or sampling.server.versions "adapters"`,
			"a server that holds one version at a time can't sample from several")
	}
	if s.Versions == VersionsNone {
		f.unused(at+"directory", s.Directory != "", `sampling.server.versions "none" loads nothing`)
	} else if s.Directory == "" {
		f.add(at+"directory", "give a directory that the servers can read", "missing")
	}
}

// url checks an address of HTTP.
func (f *Faults) url(key, address string) {
	u, err := url.Parse(address)
	if address == "" || err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		f.add(key, "give an address such as http://127.0.0.1:8000", "%q is no HTTP address", address)
	}
}
