package upstream

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/model"
)

// Adapter is a version that servers load in addition to others, over the base that they
// were started with.
type Adapter struct {
	Weights string // digest of the version's weights
	Rank    int
	// Canary holds the numbers that a server has to reproduce; nil if the trainer wrote
	// none.
	Canary *model.Canary
	// Write writes the adapter as PEFT's files.
	Write func(directory string) error
}

// placedAdapter is an adapter in a directory that servers read. One without a directory
// is the base itself.
type placedAdapter struct {
	served
	directory string
	rank      int // 0 if it is not known
	canary    *model.Canary
}

// ranks are the ranks with which vLLM can be started.
var ranks = []int{1, 8, 16, 32, 64, 128, 256, 320, 512}

// digits is how many hexadecimal digits of the digest an adapter's name contains.
const digits = 12

// admit makes a replica serve a version in addition to those that it serves. While the
// replica loads one, it answers requests for the others.
func (s *Sampler) admit(ctx context.Context, at *replica, v model.VersionID) (served, error) {
	if on, ok := at.has(v); ok {
		return on, nil
	}
	at.admitting.Lock()
	defer at.admitting.Unlock()
	if on, ok := at.has(v); ok || ctx.Err() != nil {
		return on, ctx.Err()
	}
	a, err := s.place(ctx, v)
	if err != nil {
		return served{}, err
	}
	if a.directory != "" {
		if err := s.loadAdapter(ctx, at, a); err != nil {
			return served{}, err
		}
	}
	at.add(v, a.served)
	return a.served, nil
}

// place finds the adapter of a version, and writes it if it is one of ours. Its name and
// its directory contain the digest of its weights, so they never mean other weights.
func (s *Sampler) place(ctx context.Context, v model.VersionID) (placedAdapter, error) {
	if s.options.Adapter != nil {
		a, err := s.options.Adapter(ctx, v)
		if err != nil {
			return placedAdapter{}, err
		}
		if a != nil {
			name := adapterName(v, a.Weights)
			p := placedAdapter{served{name, a.Weights}, filepath.Join(s.options.Directory, name), a.Rank, a.Canary}
			if err := a.Write(p.directory); err != nil {
				return placedAdapter{}, fmt.Errorf("write %s: %w", p.directory, err)
			}
			return p, nil
		}
	}
	if v.Number == 0 {
		return placedAdapter{served: served{s.options.Model, "server:" + s.options.Model}}, nil
	}
	directory := s.directoryOf(v)
	weights, err := readAdapter(directory)
	if err != nil {
		return placedAdapter{}, err
	}
	return placedAdapter{served: served{adapterName(v, weights), weights}, directory: directory}, nil
}

func adapterName(v model.VersionID, weights string) string {
	return versionName(v) + "-" + strings.TrimPrefix(weights, "sha256:")[:digits]
}

// loadAdapter loads an adapter and admits it if it is the right one. The name of an
// adapter contains a digest of its weights, so that other weights get another name: a
// server may have cached what an adapter of this name computed for prompts.
func (s *Sampler) loadAdapter(ctx context.Context, at *replica, a placedAdapter) error {
	if err := s.protocol.load(ctx, s, at, a.name, a.directory); err != nil {
		return explain(err, a)
	}
	err := s.verify(ctx, at, a)
	if isUnknown(err) {
		err = forgotten(err)
	}
	if errors.Is(err, model.ErrWrongWeights) {
		// Its files may be repaired, and are then loaded again.
		err = errors.Join(err, s.unload(context.WithoutCancel(ctx), at, a.name))
	}
	return err
}

// verify reports why a loaded adapter can't be sampled from.
func (s *Sampler) verify(ctx context.Context, at *replica, a placedAdapter) error {
	if a.canary == nil || len(a.canary.Rows) == 0 {
		return s.checkSlots(ctx, at)
	}
	if err := s.probe(ctx, at, a.name, a.canary.Rows[0].Prompt); err != nil {
		return err
	}
	if err := s.verifyCanary(ctx, at, a.name, *a.canary); err != nil {
		return err
	}
	return s.checkSlots(ctx, at)
}

// forgotten returns the error, with what to do, for a server that does not know an
// adapter which it has just loaded.
func forgotten(err error) error {
	return fmt.Errorf("%w: it forgot an adapter that it had just loaded (%w): start it with one API server process (--api-server-count 1), and give each data-parallel server a URL of its own", ErrVersion, err)
}

// explain adds to err what to do if a server refuses to load an adapter.
func explain(err error, a placedAdapter) error {
	var r *refusal
	if !errors.As(err, &r) {
		return err
	}
	var needs string
	switch message := r.message; {
	case strings.Contains(message, "max_lora_rank"):
		needs = "start it with --max-lora-rank " + NeededRank(a.rank)
	case strings.Contains(message, "No adapter found"):
		needs = fmt.Sprintf("it can't read %s: sampling.server.directory has to be the same directory, under the same path, for the server and for fulgurite", a.directory)
	case strings.Contains(message, "deserializing"):
		needs = fmt.Sprintf("the files in %s are cut off or damaged where it reads them: make room there and try again; fulgurite writes its files again", a.directory)
	case r.status == http.StatusNotFound:
		needs = "it can't load adapters while it runs: start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment"
	case strings.Contains(message, "LoRA is not enabled"), strings.Contains(message, "enable_lora"), strings.Contains(message, "enable-lora"):
		needs = "start it with --enable-lora"
	default:
		return err
	}
	return fmt.Errorf("%w: %s (%w)", ErrVersion, needs, err)
}

// NeededRank returns the smallest value of vLLM's --max-lora-rank that has room for a
// rank.
func NeededRank(rank int) string {
	if i, _ := slices.BinarySearch(ranks, rank); rank > 0 && i < len(ranks) {
		return strconv.Itoa(ranks[i])
	}
	return "as large as the adapter's r"
}

// slots finds --max-loras in a server's metrics.
var slots = regexp.MustCompile(`^vllm:lora_requests_info\{.*max_lora="(\d+)"`)

// checkSlots refuses a server that can't sample from as many adapters at once as there
// may be steps at the same time, each with all policies: calls of one would wait for those
// of another. It accepts a server that does not say how many it can.
func (s *Sampler) checkSlots(ctx context.Context, at *replica) error {
	response, err := s.ask(ctx, http.MethodGet, at.url+"/metrics", nil)
	if err != nil {
		if isUnknown(err) {
			return nil
		}
		return err
	}
	defer func() { _ = response.Body.Close() }()
	least, why := s.options.Lag+1, fmt.Sprintf("training.lag %d", s.options.Lag)
	if s.options.Policies > 1 {
		least, why = least*s.options.Policies, fmt.Sprintf("%s and %d policies", why, s.options.Policies)
	}
	if n := AdapterSlots(response.Body); n > 0 && n < least {
		return fmt.Errorf("%w: it samples from %d adapters at once, and with %s it has to from %d: start it with --max-loras %d", ErrVersion, n, why, least, least)
	}
	return nil
}

// AdapterSlots returns how many adapters a server samples from at once (--max-loras),
// according to its metrics; 0 if they don't say.
func AdapterSlots(metrics io.Reader) int {
	for lines := bufio.NewScanner(metrics); lines.Scan(); {
		m := slots.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		if n, err := strconv.Atoi(m[1]); err == nil {
			return n
		}
	}
	return 0
}

// adapterForm matches the names that adapterName makes.
var adapterForm = regexp.MustCompile(`^(.+)-v(\d+)-[0-9a-f]{12}$`)

// isBehind returns the version of the adapter with a name, and reports whether no step
// samples from it once newest is published.
func (s *Sampler) isBehind(name string, newest model.VersionID) (model.VersionID, bool) {
	m := adapterForm.FindStringSubmatch(name)
	if m == nil {
		return model.VersionID{}, false
	}
	v := newest
	var err error
	v.Number, err = strconv.Atoi(m[2])
	return v, err == nil && strings.HasPrefix(name, versionName(v)+"-") && v.Number < newest.Number-s.options.Lag
}

// unloadBehind makes a replica unload the adapters that no step samples from once newest
// is published. A later call for such a version loads it again. Calls in progress end as
// they would have.
func (s *Sampler) unloadBehind(ctx context.Context, at *replica, newest model.VersionID) error {
	response, err := s.ask(ctx, http.MethodGet, at.url+"/v1/models", nil) //nolint:bodyclose // readJSON closes it
	if err != nil {
		return fmt.Errorf("list adapters: %w", err)
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := readJSON(response, &list); err != nil {
		return fmt.Errorf("list adapters: %w", err)
	}
	for _, on := range list.Data {
		v, behind := s.isBehind(on.ID, newest)
		if !behind {
			continue
		}
		at.forget(v)
		if err := s.unload(ctx, at, on.ID); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sampler) unload(ctx context.Context, at *replica, name string) error {
	response, err := s.post(ctx, at.url+"/v1/unload_lora_adapter", map[string]any{"lora_name": name})
	if isUnknown(err) {
		return nil // another process has unloaded it already
	}
	if err != nil {
		return fmt.Errorf("unload adapter %s: %w", name, err)
	}
	return response.Body.Close()
}

// removeBehind removes the files of adapters that no step samples from once newest is
// published.
func (s *Sampler) removeBehind(newest model.VersionID) error {
	files, err := os.ReadDir(s.options.Directory)
	if errors.Is(err, os.ErrNotExist) {
		return nil // nothing was written yet
	}
	if err != nil {
		return fmt.Errorf("list adapters: %w", err)
	}
	for _, f := range files {
		if _, behind := s.isBehind(f.Name(), newest); behind && f.IsDir() {
			if err := os.RemoveAll(filepath.Join(s.options.Directory, f.Name())); err != nil {
				return fmt.Errorf("remove adapter: %w", err)
			}
		}
	}
	return nil
}

// directoryOf returns the directory in which a version lies for the servers to read.
func (s *Sampler) directoryOf(v model.VersionID) string {
	return filepath.Join(s.options.Directory, versionName(v))
}

// versionName returns a version's name at a server. The names of runs and policies have no
// "+", so it is never that of a version of another run.
func versionName(v model.VersionID) string {
	if v.Policy == "" || v.Policy == model.DefaultPolicy {
		return fmt.Sprintf("%s-v%d", v.Run, v.Number)
	}
	return fmt.Sprintf("%s+%s-v%d", v.Run, v.Policy, v.Number)
}

// expected returns the version that a reply has to name; empty if replies name none.
func (s *Sampler) expected(v model.VersionID) string {
	if s.options.Versions == Reload {
		return versionName(v)
	}
	return ""
}

// loadVersion makes a replica load a version in place of another.
func (s *Sampler) loadVersion(ctx context.Context, at *replica, v model.VersionID) (served, error) {
	directory := s.directoryOf(v)
	weights, err := s.options.Write(ctx, v, directory)
	if err != nil {
		return served{}, fmt.Errorf("write %s: %w", directory, err)
	}
	return served{s.options.Model, weights}, s.protocol.load(ctx, s, at, versionName(v), directory)
}

// readAdapter returns the digest of the adapter that an external trainer left in a
// directory.
func readAdapter(directory string) (weights string, err error) {
	config, err := os.ReadFile(filepath.Join(directory, model.AdapterConfigFile))
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%w: there is no adapter in %s: give model.lora, or have the trainer leave %s and %s there",
			ErrVersion, directory, model.AdapterConfigFile, model.AdapterFile)
	}
	if err != nil {
		return "", fmt.Errorf("read adapter: %w", err)
	}
	file, err := os.ReadFile(filepath.Join(directory, model.AdapterFile))
	if err != nil {
		return "", fmt.Errorf("read adapter: %w", err)
	}
	sum := sha256.Sum256(append(config, file...))
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}
