// Package reflector asks whoever reflects on prompts: a model behind an HTTP API, a command,
// or a recording of another reflector.
//
// Package prompts/search decides what is asked ([search.Render]) and which replies are of
// use ([search.ReadText]). A reflector here returns whatever was replied, also if it is
// empty, was cut off or makes no sense. It keeps nothing, except for a recording: the caller
// stores each reply under [Reflector.Key], so that each question is asked once.
//
// Guarantees: the text of a reply is valid UTF-8 without the character NUL, so that every
// store takes it. No error contains the key of an API. Errors that wrap [ErrRefused],
// [ErrFailed] or [ErrNotRecorded] are final: asking again gives the same error until somebody
// changes something. After any other error, ask again.
package reflector

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Final errors.
var (
	// ErrRefused means that a server does not accept the question, the key or the model.
	ErrRefused = errors.New("the reflector refuses")
	// ErrFailed means that a command gave no reply in all its tries.
	ErrFailed = errors.New("the reflector's command failed")
	// ErrNotRecorded means that a recording has no reply to the question, or is one of
	// another reflector.
	ErrNotRecorded = errors.New("the recording does not have the reply")
)

// Final reports whether asking again can't help.
func Final(err error) bool {
	return errors.Is(err, ErrRefused) || errors.Is(err, ErrFailed) || errors.Is(err, ErrNotRecorded)
}

// Question is what is asked. Its JSON is what a command reads.
type Question struct {
	System string `json:"system,omitempty"`
	User   string `json:"user"`
	// MaxTokens is the most tokens that the reply may have. 0 means Options.MaxTokens.
	MaxTokens int `json:"max_tokens"`
	// Try is 0 at first. Another number asks for another reply to the same texts.
	Try int `json:"try"`
}

// Reply is what came back. Its JSON is what a command may print.
type Reply struct {
	Text string `json:"text"`
	// CutOff says that the reply ended because it was too long.
	CutOff bool  `json:"cut_off,omitempty"`
	Usage  Usage `json:"usage,omitzero"`
	// Model is what the reflector calls the model that replied.
	Model string `json:"model,omitempty"`
}

// Usage counts tokens. It is zero if they are not known.
type Usage struct {
	Input  int `json:"input"`
	Output int `json:"output"`
}

// Reflector replies to questions. It is safe for concurrent use.
type Reflector interface {
	Reflect(ctx context.Context, q Question) (Reply, error)
	// Key returns "sha256:" and a digest of everything that decides the reply: what kind
	// of reflector this is, its model or command, and the question. It does not depend
	// on addresses and keys of APIs.
	Key(q Question) string
	// Close releases what the reflector holds.
	Close()
}

// Type is a kind of reflector.
type Type string

// Types.
const (
	OpenAI    Type = "openai"
	Anthropic Type = "anthropic"
	Command   Type = "command"
	Recorded  Type = "recorded"
)

// Options say who reflects. Errors call them optimizer.reflector.FIELD.
type Options struct {
	Type Type
	// URL is where a server's API is: what ends in /v1 with OpenAI, while that end may be
	// missing with Anthropic.
	URL string
	// Model is the name of a server's model. A command may have one too: it is part of the
	// keys of its replies, so another name asks everything anew.
	Model string
	// Key is the value of the API's key. If it is empty, none is sent.
	Key string
	// Command is a program and its arguments, and Dir the directory that it runs in.
	Command []string
	Dir     string
	// File is the recording that Recorded replays. With other types it may be empty;
	// otherwise every reply is recorded there. See Record.
	File string
	// Timeout is how long a server may take for a reply, and a command for each of its
	// tries. 0 means DefaultTimeout.
	Timeout time.Duration
	// MaxTokens is the most tokens of a reply where the question does not say. 0 means
	// DefaultMaxTokens.
	MaxTokens int
}

// Defaults.
const (
	DefaultTimeout   = 5 * time.Minute
	DefaultMaxTokens = 4096
)

// New returns the reflector with the given options. It connects to no server and starts no
// command, but reads a recording.
func New(o Options) (Reflector, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.Timeout, o.MaxTokens = cmp.Or(o.Timeout, DefaultTimeout), cmp.Or(o.MaxTokens, DefaultMaxTokens)
	var r Reflector
	switch o.Type {
	case Recorded:
		return replay(o)
	case Command:
		r = newProgram(o)
	default:
		r = newServer(o)
	}
	if o.File == "" {
		return r, nil
	}
	recording, err := Record(r, o.File)
	if err != nil {
		r.Close()
		return nil, fault("file", "%w", err)
	}
	return recording, nil
}

func fault(field, format string, arguments ...any) error {
	return fmt.Errorf("optimizer.reflector."+field+": "+format, arguments...)
}

func types() []Type { return []Type{OpenAI, Anthropic, Command, Recorded} }

// check returns an error that names the first field that is wrong, missing or without use.
func (o Options) check() error {
	if !slices.Contains(types(), o.Type) {
		return fault("type", "want %s, %s, %s or %s, not %q", OpenAI, Anthropic, Command, Recorded, o.Type)
	}
	isServer := o.Type == OpenAI || o.Type == Anthropic
	for _, field := range []struct {
		name                   string
		given, needed, allowed bool
	}{
		{"url", o.URL != "", isServer, isServer},
		{"model", o.Model != "", isServer, o.Type != Recorded},
		{"key", o.Key != "", false, isServer},
		{"command", len(o.Command) > 0, o.Type == Command, o.Type == Command},
		{"dir", o.Dir != "", false, o.Type == Command},
		{"file", o.File != "", o.Type == Recorded, true},
	} {
		switch {
		case field.needed && !field.given:
			return fault(field.name, "type %s needs it", o.Type)
		case field.given && !field.allowed:
			return fault(field.name, "has no use with type %s", o.Type)
		}
	}
	switch {
	case isServer:
		if err := checkURL(o.URL); err != nil {
			return err
		}
	case o.Type == Command && (o.Command[0] == "" || slices.ContainsFunc(o.Command, hasNUL)):
		return fault("command", "the program's name is empty, or a word has the character NUL")
	}
	if strings.ContainsAny(o.Key, "\r\n\x00") {
		return fault("key", "has a line break; perhaps it was read from a file with one at its end")
	}
	if o.Timeout < 0 {
		return fault("timeout", "want a positive duration, not %s", o.Timeout)
	}
	if o.MaxTokens < 0 {
		return fault("max_tokens", "want a positive number, not %d", o.MaxTokens)
	}
	return nil
}

func hasNUL(text string) bool { return strings.Contains(text, "\x00") }

// checkURL does not quote the address, which may have a password in it.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fault("url", "this is no URL")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return fault("url", "want http://HOST… or https://HOST…")
	case u.User != nil:
		return fault("url", "it has a user in it; a key belongs in optimizer.reflector.key")
	case u.RawQuery != "" || u.Fragment != "":
		return fault("url", "want it without ? and #")
	}
	return nil
}

// keyVersion is part of all keys. It is incremented when the same question is asked in
// another way.
const keyVersion = "fulgurite reflector 1"

// digest returns the digest of texts. Lengths separate them, so that no two lists are
// written alike.
func digest(texts ...string) string {
	h := sha256.New()
	for _, text := range append([]string{keyVersion}, texts...) {
		// A hash never returns an error.
		_ = binary.Write(h, binary.LittleEndian, uint64(len(text)))
		_, _ = h.Write([]byte(text))
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// texts returns the parts of the question, for digests.
func (q Question) texts() []string {
	return []string{q.System, q.User, strconv.Itoa(q.MaxTokens), strconv.Itoa(q.Try)}
}

// complete returns the question with the number of tokens that its reply may have.
func (q Question) complete(maxTokens int) Question {
	q.MaxTokens = cmp.Or(q.MaxTokens, maxTokens)
	return q
}

// storable returns a reply with texts that every store takes.
func storable(r Reply) Reply {
	r.Text, r.Model = clean(r.Text), clean(r.Model)
	r.Usage = Usage{max(0, r.Usage.Input), max(0, r.Usage.Output)}
	return r
}

// clean replaces what is no UTF-8, and the character NUL, which PostgreSQL does not take.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
