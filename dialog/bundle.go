package dialog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/dialog/jinja"
	"github.com/fulgurite/fulgurite/dialog/toolcall"
	"github.com/fulgurite/fulgurite/internal/textfile"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// TemplatePrefix begins the names of codecs that a Bundle makes; the digest of the
// encoded bundle follows.
const TemplatePrefix = "template:"

// ErrBundle is wrapped by errors about a model directory or a bundle from which no codec
// can be made. The message says what to change.
var ErrBundle = errors.New("the model's tokenizer or chat template can't be used")

// Bundle is the content of a published model's codec: everything in its directory that
// decides the tokens of a dialog, in one piece that can be stored under the digest of its
// bytes.
type Bundle struct {
	// Tokenizer is the tokenizer.json.
	Tokenizer json.RawMessage `json:"tokenizer"`
	// Template is the chat template. If ToolTemplate is not empty, it is used instead
	// where tools are offered.
	Template     string `json:"template"`
	ToolTemplate string `json:"tool_template,omitempty"`
	// Special maps the names that templates use for special tokens, such as bos_token, to
	// the texts of these tokens.
	Special map[string]string `json:"special_tokens,omitempty"`
	// Stop lists the tokens that end a completion, in addition to the one with which the
	// template ends a turn.
	Stop []int32 `json:"stop,omitempty"`
	// VocabSize is the number of rows of the model's embedding, which may be larger than
	// the tokenizer's number of tokens; 0 means that number.
	VocabSize int `json:"vocab_size,omitempty"`
	// ToolParser names the format of tool calls; empty means the format that the template
	// shows.
	ToolParser string `json:"tool_parser,omitempty"`
	// Variables is an object of further variables for the template, such as
	// enable_thinking.
	Variables json.RawMessage `json:"variables,omitempty"`
	// Date is the day, such as 2024-07-26, that templates get as the current date. A
	// codec reads no clock, so equal dialogs have equal tokens on any day. Empty means
	// 2024-07-26.
	Date string `json:"date,omitempty"`
}

// Encode returns the bundle's bytes. Equal bundles have equal bytes.
func (b Bundle) Encode() ([]byte, error) {
	text, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode codec bundle: %w", err)
	}
	return text, nil
}

// DecodeBundle inverts Encode.
func DecodeBundle(text []byte) (Bundle, error) {
	var b Bundle
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		return Bundle{}, fmt.Errorf("%w: %w", ErrBundle, err)
	}
	return b, nil
}

// BundleName returns the name of the codec of an encoded bundle.
func BundleName(encoded []byte) string {
	digest := sha256.Sum256(encoded)
	return TemplatePrefix + "sha256:" + hex.EncodeToString(digest[:])
}

// ReadCodec makes the codec of a model's directory. template is the path of a file with a
// chat template, and parser is the name of a parser of tool calls, as in a spec's
// model.template and model.tool_parser; where they are empty, the directory decides.
// encoded is the codec's encoded bundle, and the codec's name is BundleName of it.
func ReadCodec(dir, template, parser string) (codec Codec, encoded []byte, err error) {
	return ReadCodecWith(dir, Choices{Template: template, ToolParser: parser})
}

// Choices replace or add to what a model's directory says about its codec.
type Choices struct {
	Template   string // path of a file with a chat template; empty for the directory's
	ToolParser string // empty for the format that the template shows
	// StopTokens end a completion, too. Each is the text of a token, or its id in decimal.
	StopTokens []string
	// Variables are further variables of the template, by name.
	Variables map[string]any
}

// ReadCodecWith works like ReadCodec.
func ReadCodecWith(dir string, c Choices) (codec Codec, encoded []byte, err error) {
	key := "model.codec"
	b, err := ReadBundleWith(dir, c.Template)
	b.ToolParser = c.ToolParser
	if err == nil && len(c.Variables) > 0 {
		if b.Variables, err = json.Marshal(c.Variables); err != nil {
			return nil, nil, fmt.Errorf("model.template_variables: %w", err)
		}
	}
	if err == nil && len(c.StopTokens) > 0 {
		if err = b.addStop(c.StopTokens); err != nil {
			return nil, nil, fmt.Errorf("sampling.stop_tokens: %w", err)
		}
	}
	if err == nil {
		encoded, err = b.Encode()
	}
	if err == nil {
		if c.Template != "" {
			key = "model.template"
		}
		if codec, err = b.codec(BundleName(encoded)); err != nil {
			codec = nil
		}
	}
	if err == nil {
		err = CheckTools(codec, c.ToolParser)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", key, err)
	}
	return codec, encoded, nil
}

// addStop adds tokens that end a completion.
func (b *Bundle) addStop(tokens []string) error {
	vocabulary, err := tokenizer.FromJSON(b.Tokenizer)
	if err != nil {
		return err
	}
	for _, text := range tokens {
		id, ok := findToken(vocabulary, text)
		switch {
		case !ok:
			return fmt.Errorf("%w: the model's tokenizer has no token %q: give the text of one token, such as </s>, or its id as text", ErrBundle, text)
		case b.VocabSize > 0 && int(id) >= b.VocabSize:
			return fmt.Errorf("%w: token %q has the id %d, and the model's embedding has %d rows: the model can't write it", ErrBundle, text, id, b.VocabSize)
		}
		b.Stop = append(b.Stop, id)
	}
	slices.Sort(b.Stop)
	b.Stop = slices.Compact(b.Stop)
	return nil
}

// findToken returns the token with a text, or else the one whose id the text is in
// decimal.
func findToken(vocabulary *tokenizer.BPE, text string) (id int32, ok bool) {
	if id, ok = vocabulary.Find(text); ok {
		return id, true
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, false
	}
	return int32(n), vocabulary.Has(int32(n))
}

// toolFormat returns the format that the bundle names, or else the one that its template
// shows. It returns nil if the template shows none.
//
// A template shows qwen3_xml if it writes "<function=" and "<parameter="; hermes if it
// writes "<tool_call>" and "arguments" but not those two; llama3_json if it writes
// "parameters" and "name", or a Python tag, but no "<tool_call>"; mistral if it writes
// "[TOOL_CALLS]"; and pythonic if it writes "[func_name1(" or "<|python_start|>".
func (b Bundle) toolFormat() (toolcall.Format, error) {
	if b.ToolParser != "" {
		f, err := toolcall.Named(b.ToolParser)
		if err != nil {
			return nil, fmt.Errorf("%w: model.tool_parser: %w", ErrBundle, err)
		}
		return f, nil
	}
	text := b.Template
	if b.ToolTemplate != "" {
		text = b.ToolTemplate
	}
	shows := func(words ...string) bool {
		for _, w := range words {
			if !strings.Contains(text, w) {
				return false
			}
		}
		return true
	}
	var names []string
	tagged := shows("<tool_call>")
	xml := tagged && shows("<function=", "<parameter=")
	calls := shows("[TOOL_CALLS]")
	if calls {
		names = append(names, "mistral")
	}
	if xml {
		names = append(names, "qwen3_xml")
	}
	if tagged && !xml && shows("arguments") {
		names = append(names, "hermes")
	}
	if !tagged && !calls && (shows(`{"name": `, `"parameters": `) || shows("<|python_tag|>")) {
		names = append(names, "llama3_json")
	}
	if shows("[func_name1(") || shows("<|python_start|>") {
		names = append(names, "pythonic")
	}
	switch len(names) {
	case 0:
		return nil, nil
	case 1:
		return toolcall.Named(names[0])
	}
	return nil, fmt.Errorf("%w: the chat template shows tool calls of %s: set model.tool_parser to one of them", ErrBundle, strings.Join(names, " and "))
}

// ReadBundle reads the bundle of a model directory in the layout of Hugging Face's tools.
// The tokenizer is in tokenizer.json, to which tokenizer_config.json or, without its
// added_tokens_decoder, special_tokens_map.json and added_tokens.json can add tokens. The
// chat template is in chat_template.jinja (and additional_chat_templates/tool_use.jinja) or
// in tokenizer_config.json. The special tokens are in tokenizer_config.json or
// special_tokens_map.json. The tokens that end a completion are in generation_config.json
// and config.json.
func ReadBundle(dir string) (Bundle, error) { return ReadBundleWith(dir, "") }

// ReadBundleWith works like ReadBundle, but takes the chat template from the file at
// template unless that is empty. The directory then needs no template. An error about the
// template has line and column.
func ReadBundleWith(dir, template string) (Bundle, error) {
	b, err := readBundle(dir, template)
	if err != nil {
		return Bundle{}, fmt.Errorf("read codec of %s: %w", dir, err)
	}
	return b, nil
}

func readBundle(dir, template string) (Bundle, error) {
	var b Bundle
	settings, err := readTokenSettings(dir)
	if err != nil {
		return Bundle{}, err
	}
	if b.Tokenizer, err = readTokenizer(dir, settings); err != nil {
		return Bundle{}, err
	}
	b.Special = settings.specials()
	if template != "" {
		err = b.readTemplate(template)
	} else {
		err = b.readTemplates(dir, settings.config["chat_template"])
	}
	if err != nil {
		return Bundle{}, err
	}
	var config struct {
		EOS       tokenIDs `json:"eos_token_id"`
		VocabSize int      `json:"vocab_size"`
	}
	for _, name := range []string{"config.json", "generation_config.json"} {
		if err := readOptional(dir, name, &config); err != nil {
			return Bundle{}, err
		}
		b.Stop = append(b.Stop, config.EOS...)
	}
	slices.Sort(b.Stop)
	b.Stop, b.VocabSize = slices.Compact(b.Stop), config.VocabSize
	return b, nil
}

// ReadTokenizer returns the tokenizer.json of a model directory, with the tokens that
// other files of the directory add.
func ReadTokenizer(dir string) (json.RawMessage, error) {
	settings, err := readTokenSettings(dir)
	if err != nil {
		return nil, err
	}
	return readTokenizer(dir, settings)
}

func readTokenizer(dir string, settings tokenSettings) (json.RawMessage, error) {
	text, err := textfile.Read(filepath.Join(dir, tokenizerFile))
	if errors.Is(err, textfile.ErrText) {
		return nil, fmt.Errorf("%w: %w", ErrBundle, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the directory of a model has its tokenizer: %w", ErrBundle, err)
	}
	var raw json.RawMessage
	if err := model.DecodeJSON(text, &raw); err != nil {
		return nil, fmt.Errorf("%w: tokenizer.json: %w", ErrBundle, err)
	}
	return settings.merge(text)
}

// readOptional reads a JSON file into a value. A file that does not exist changes
// nothing.
func readOptional(dir, name string, into any) error {
	text, err := textfile.Read(filepath.Join(dir, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = model.DecodeJSON(text, into)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBundle, name, err)
	}
	return nil
}

// tokenIDs is a list of token ids, which JSON may also write as one id.
type tokenIDs []int32

// UnmarshalJSON implements json.Unmarshaler.
func (ids *tokenIDs) UnmarshalJSON(text []byte) error {
	var one *int32
	if json.Unmarshal(text, &one) == nil {
		*ids = nil
		if one != nil {
			*ids = tokenIDs{*one}
		}
		return nil
	}
	var several []*int32
	if err := json.Unmarshal(text, &several); err != nil {
		return errors.New("eos_token_id: want a token id or a list of them")
	}
	*ids = nil
	for _, id := range several {
		if id != nil { // null, as for one id, names none: it must not become token 0
			*ids = append(*ids, *id)
		}
	}
	return nil
}

// specialTokens returns the settings named …_token. Each setting is a text or an object
// that has one.
func specialTokens(settings map[string]json.RawMessage) map[string]string {
	tokens := map[string]string{}
	for name, value := range settings {
		if !strings.HasSuffix(name, "_token") {
			continue
		}
		if text := tokenText(value); text != "" {
			tokens[name] = text
		}
	}
	return tokens
}

func (b *Bundle) readTemplate(file string) error {
	text, err := textfile.Read(file)
	if err == nil {
		_, err = jinja.Parse(string(text))
	}
	if err == nil && len(text) == 0 {
		err = errors.New("the file is empty")
	}
	if err != nil {
		return fmt.Errorf("%w: chat template of model.template, %s: %w", ErrBundle, file, err)
	}
	b.Template = string(text)
	return nil
}

func (b *Bundle) readTemplates(dir string, setting json.RawMessage) error {
	named := map[string]string{}
	var one string
	var several []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	switch {
	case json.Unmarshal(setting, &one) == nil:
		named["default"] = one
	case json.Unmarshal(setting, &several) == nil:
		for _, t := range several {
			named[t.Name] = t.Template
		}
	case len(setting) > 0:
		return fmt.Errorf("%w: tokenizer_config.json: chat_template: want a template or a list of named ones", ErrBundle)
	}
	for name, file := range map[string]string{"default": "chat_template.jinja", "tool_use": "additional_chat_templates/tool_use.jinja"} {
		text, err := textfile.Read(filepath.Join(dir, filepath.FromSlash(file)))
		if err == nil {
			named[name] = string(text)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s: %w", ErrBundle, file, err)
		}
	}
	if b.Template = named["default"]; b.Template == "" {
		return fmt.Errorf("%w: no chat template: give a file as model.template, put chat_template.jinja into the directory, or use a model that was trained to chat", ErrBundle)
	}
	b.ToolTemplate = named["tool_use"]
	return nil
}

// WriteDirectory writes the bundle into a model's directory, in the files that ReadBundle
// and other tools read: tokenizer.json, tokenizer_config.json, generation_config.json and
// the chat templates. It makes dir if it does not exist, and replaces these files.
func (b Bundle) WriteDirectory(dir string) error {
	if err := b.writeDirectory(dir); err != nil {
		return fmt.Errorf("write codec to %s: %w", dir, err)
	}
	return nil
}

func (b Bundle) writeDirectory(dir string) error {
	codec, err := b.Codec(TemplatePrefix)
	if err != nil {
		return err
	}
	stop := codec.Stop()
	tokenizer := map[string]any{
		// The class that uses tokenizer.json unchanged.
		"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false, "add_prefix_space": false,
	}
	for name, token := range b.Special {
		tokenizer[name] = token
	}
	if b.Special["eos_token"] == "" {
		tokenizer["eos_token"] = codec.Text(stop[:1])
	}
	files := map[string]any{"tokenizer_config.json": tokenizer, "generation_config.json": map[string]any{"eos_token_id": stop}}
	texts := map[string][]byte{"tokenizer.json": b.Tokenizer, "chat_template.jinja": []byte(b.Template)}
	if b.ToolTemplate != "" {
		texts["additional_chat_templates/tool_use.jinja"] = []byte(b.ToolTemplate)
	}
	for name, content := range files {
		if texts[name], err = json.MarshalIndent(content, "", "  "); err != nil {
			return fmt.Errorf("encode %s: %w", name, err)
		}
	}
	for name, text := range texts {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
