package evaluate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/modeldir"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

const (
	// listTimeout is how long a server may take to list its models, and listBytes how
	// much it may answer.
	listTimeout = 30 * time.Second
	listBytes   = 1 << 20
)

// choose makes the spec evaluate the model that --model names, and returns a label for
// it.
func (c *Command) choose(ctx context.Context, t *terminal.Terminal, records fleet.Records, sp *spec.Spec) (label string, err error) {
	served := strings.HasPrefix(c.Model, "http://") || strings.HasPrefix(c.Model, "https://")
	if !served && (c.ServerModel != "" || c.ServerKey != "") {
		return "", terminal.Usagef("--server-model and --server-key are for a server: give its URL as --model")
	}
	if served {
		return c.chooseServer(ctx, t, sp)
	}
	if c.Model == "" {
		if v := sp.Model.Version; v != "" {
			return v, nil
		}
		return "start", nil
	}
	stat, err := os.Stat(c.Model)
	switch {
	case err == nil && stat.IsDir():
		return c.chooseDirectory(sp)
	case err == nil:
		return "", terminal.Usagef("--model %s is a file: %s", c.Model, modeldir.InsteadOfDirectory(c.Model))
	case modeldir.OnHub(c.Model) != "":
		return "", terminal.Usagef("--model %s is on the hub: make a directory of it with `%s`, and give that", c.Model, shell.Command("import", "hf:"+modeldir.OnHub(c.Model), "DIR"))
	case strings.ContainsRune(c.Model, '/') || strings.HasPrefix(c.Model, "."):
		return "", terminal.Usagef("--model %s: no such directory", c.Model)
	}
	return c.chooseVersion(ctx, records, sp)
}

// chooseVersion makes the spec evaluate a version of a run, with the model of that run.
func (c *Command) chooseVersion(ctx context.Context, records fleet.Records, sp *spec.Spec) (string, error) {
	v, _, err := records.Catalog.Choose(ctx, c.Model)
	if errors.Is(err, record.ErrNotFound) {
		return "", terminal.Usage(fmt.Errorf("--model %s: %w; want RUN@NUMBER, RUN@promoted, RUN@newest, RUN:POLICY@NUMBER, a directory or a URL", c.Model, err))
	}
	if err != nil {
		return "", fmt.Errorf("--model %s: %w", c.Model, err)
	}
	if !v.Collected.IsZero() {
		return "", terminal.Usage(fmt.Errorf("--model %s: %w", c.Model, model.ErrCollected))
	}
	if server := sp.Sampling.Server; server != nil && sp.WithDefaults().Sampling.Server.Versions == spec.VersionsNone {
		sp.Sampling.Server = nil // it would never sample from the version
	}
	sp.Model, sp.Policies = spec.Model{Engine: sp.Model.Engine, Version: v.String()}, sp.PoliciesOfVersion()
	if v.Policy != model.DefaultPolicy {
		return fmt.Sprintf("%s-%s-%d", v.Run, v.Policy, v.Number), nil
	}
	return fmt.Sprintf("%s-%d", v.Run, v.Number), nil
}

// chooseDirectory makes the spec evaluate the model in a directory, with its own
// tokenizer if it has one. The built-in sampler loads the model, because a server would
// sample from the model that it was started with.
func (c *Command) chooseDirectory(sp *spec.Spec) (string, error) {
	directory, err := filepath.Abs(c.Model)
	if err != nil {
		return "", err
	}
	m := &sp.Model
	m.Base, m.Context, m.WarmStart, m.Version = directory, 0, nil, ""
	sp.Policies = sp.PoliciesOfVersion()
	if m.LoRA != nil && m.LoRA.Adapter != "" {
		m.LoRA = nil // it is one of another model
	}
	sp.Sampling.Server = nil
	switch _, err := os.Stat(filepath.Join(directory, "tokenizer.json")); {
	case err == nil:
		m.Codec = spec.CodecTemplate
	case m.Codec == spec.CodecTemplate || m.Codec == spec.CodecMessages:
		m.Codec = ""
	}
	if m.Codec != spec.CodecTemplate {
		m.ToolParser, m.Template, m.TemplateVariables = "", "", nil
	}
	return filepath.Base(directory), nil
}

// chooseServer makes the spec evaluate a model that a server with OpenAI's API serves.
func (c *Command) chooseServer(ctx context.Context, t *terminal.Terminal, sp *spec.Spec) (string, error) {
	address := strings.TrimSuffix(strings.TrimRight(c.Model, "/"), "/v1")
	if u, err := url.Parse(address); err != nil || u.Host == "" {
		return "", terminal.Usagef("--model %s: want an address such as http://127.0.0.1:8000/v1", c.Model)
	}
	name := c.ServerModel
	names, err := servedModels(ctx, address, c.ServerKey)
	switch {
	case err != nil && name != "":
		fmt.Fprintf(t.Err, "fulgurite: %v; the evaluation waits for what does not answer\n", err)
	case err != nil:
		return "", fmt.Errorf("%w; give --server-model", err)
	case name == "" && len(names) != 1:
		return "", terminal.Usagef("--model %s serves %s: give --server-model", c.Model, cmp.Or(strings.Join(names, ", "), "nothing that it lists"))
	case name == "":
		name = names[0]
	case !slices.Contains(names, name):
		fmt.Fprintf(t.Err, "fulgurite: %s does not list a model %s, but %s; the evaluation waits for what does not answer\n",
			c.Model, name, cmp.Or(strings.Join(names, ", "), "none"))
	}
	sp.Model = spec.Model{}
	sp.Sampling.Server = &spec.Server{Type: spec.ServerOpenAI, URLs: []string{address}, Model: name, Key: c.ServerKey}
	return name, nil
}

// servedModels returns the names of the models that a server lists.
func servedModels(ctx context.Context, address, key string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/v1/models", nil)
	if err != nil {
		return nil, terminal.Usage(err)
	}
	if secret := os.Getenv(key); key != "" && secret != "" {
		request.Header.Set("Authorization", "Bearer "+secret)
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("list the models of %s: %w", address, err)
	}
	defer reply.Body.Close()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if reply.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("list the models of %s: %s", address, reply.Status)
	}
	if err := json.NewDecoder(io.LimitReader(reply.Body, listBytes)).Decode(&list); err != nil {
		return nil, fmt.Errorf("list the models of %s: %w", address, err)
	}
	var names []string
	for _, m := range list.Data {
		names = append(names, m.ID)
	}
	return names, nil
}
