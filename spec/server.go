package spec

import (
	"fmt"
	"net/url"
	"strings"
)

// Trainable reports, as *Faults, why weights can't be trained with s although it can
// be tried and evaluated.
func (s Spec) Trainable() error {
	server := s.WithDefaults().Sampling.Server
	f := &Faults{}
	switch {
	case server == nil:
	case server.Type == ServerOpenAI:
		f.add("sampling.server.type", "train with vllm or sglang, or leave sampling.server out for the built-in sampler",
			"a server of type openai says no token ids, and text that is tokenized anew is not what was sampled")
	case server.Versions == VersionsNone:
		f.add("sampling.server.versions", "give adapters or reload", "the server would never sample from what was trained")
	}
	return f.err()
}

// defaultVersions is how the type of server changes weights.
func (s Server) defaultVersions() string {
	switch s.Type {
	case ServerSGLang:
		return VersionsReload
	case ServerOpenAI:
		return VersionsNone
	}
	return VersionsAdapters
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
	if s.Versions != VersionsNone && s.Versions != s.defaultVersions() {
		f.add(at+"versions", "give adapters with vllm, reload with sglang, or none", "%s does not load versions so", s.Type)
	}
	relays := s.Type == ServerOpenAI
	if relays != (all.Model.Codec == CodecMessages) {
		f.add("model.codec", "leave it out", `sampling.server.type "openai" takes messages, and no other takes them`)
	}
	f.unused("model.warm_start", relays && all.Model.WarmStart != nil, `sampling.server.type "openai" never samples from what was trained`)
	if s.Versions == VersionsReload && all.Training.Lag > 0 {
		f.add("training.lag", `give 0, or sampling.server.versions "adapters"`,
			"a server that holds one version at a time can't sample from several")
	}
	if t := all.Sampling.Temperature; t != nil && *t > 2 && s.Type != ServerSGLang {
		f.add("sampling.temperature", "give at most 2", "a server of type %s takes no %g", s.Type, *t)
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
