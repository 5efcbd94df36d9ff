package dialog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/model"
)

// The files of a model's directory that can add tokens to those of tokenizer.json.
const (
	tokenizerFile       = "tokenizer.json"
	tokenizerConfigFile = "tokenizer_config.json"
	specialTokensFile   = "special_tokens_map.json"
	addedTokensFile     = "added_tokens.json"
)

// TokenFiles returns the names of the files from which ReadBundle reads tokens, apart from
// tokenizer.json. Each may be absent.
func TokenFiles() []string { return []string{tokenizerConfigFile, specialTokensFile, addedTokensFile} }

// addedToken is a token as all of these files write it.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// namedTokens lists the settings of special tokens that transformers knows, in the order in
// which it adds tokens that tokenizer.json lacks.
func namedTokens() []string {
	return []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}
}

// tokenSettings are the settings about tokens of a model's directory.
type tokenSettings struct {
	config map[string]json.RawMessage // of tokenizer_config.json
	keys   []string                   // of config, in the order of the file
	names  map[string]json.RawMessage // of special_tokens_map.json
	added  map[string]int32           // of added_tokens.json
}

func readTokenSettings(dir string) (s tokenSettings, err error) {
	var config json.RawMessage
	for name, into := range map[string]any{tokenizerConfigFile: &config, specialTokensFile: &s.names, addedTokensFile: &s.added} {
		if err := readOptional(dir, name, into); err != nil {
			return s, err
		}
	}
	if config == nil {
		return s, nil
	}
	if err := model.DecodeJSON(config, &s.config); err != nil {
		return s, fmt.Errorf("%w: %s: %w", ErrBundle, tokenizerConfigFile, err)
	}
	s.keys = keysInOrder(config)
	if s.listed() { // transformers then ignores the older files
		s.names, s.added = nil, nil
	}
	return s, nil
}

// keysInOrder returns the keys of a JSON object as they come.
func keysInOrder(object []byte) (keys []string) {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return nil
	}
	for d.More() {
		key, err := d.Token()
		name, ok := key.(string)
		var value json.RawMessage
		if err != nil || !ok || d.Decode(&value) != nil {
			return keys
		}
		keys = append(keys, name)
	}
	return keys
}

// listed reports whether tokenizer_config.json lists the added tokens.
func (s *tokenSettings) listed() bool { return s.config["added_tokens_decoder"] != nil }

// specials returns the settings named …_token, by name.
func (s *tokenSettings) specials() map[string]string {
	all := maps.Clone(s.config)
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	maps.Copy(all, s.names)
	return specialTokens(all)
}

// tokenText returns the content of a token, which a file writes as a text or as an object.
func tokenText(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	var object addedToken
	_ = json.Unmarshal(value, &object) // another value is not a token
	return object.Content
}

// specialToken reads a special token, which a file writes as a text or as an object.
func specialToken(value json.RawMessage) addedToken {
	t := addedToken{Content: tokenText(value)}
	_ = json.Unmarshal(value, &t) // a text has no flags
	t.Special = true
	return t
}

// merge returns tokenizer.json with the tokens that the other files add, numbered as
// transformers numbers them. Without additions it returns the same bytes. add_bos_token and
// add_eos_token have no effect beside a tokenizer.json, whose post_processor decides.
func (s *tokenSettings) merge(text json.RawMessage) (json.RawMessage, error) {
	var f struct {
		Added []addedToken `json:"added_tokens"`
		Model struct {
			Vocab json.RawMessage `json:"vocab"`
		} `json:"model"`
	}
	if err := model.DecodeJSON(text, &f); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrBundle, tokenizerFile, err)
	}
	m := merger{added: f.Added}
	if json.Unmarshal(f.Model.Vocab, &m.vocab) != nil {
		return text, nil // not a BPE: the tokenizer refuses it by name
	}
	if err := s.add(&m); err != nil {
		return nil, err
	}
	if !m.changed {
		return text, nil
	}
	fields := map[string]json.RawMessage{}
	if err := model.DecodeJSON(text, &fields); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrBundle, tokenizerFile, err)
	}
	added, err := json.Marshal(m.added)
	if err != nil {
		return nil, fmt.Errorf("encode added_tokens: %w", err)
	}
	fields["added_tokens"] = added
	return json.Marshal(fields)
}

func (s *tokenSettings) add(m *merger) error {
	if err := s.addNumbered(m); err != nil {
		return err
	}
	extra, err := s.extras()
	if err != nil {
		return err
	}
	names := namedTokens()
	for _, key := range append(slices.Clone(s.keys), slices.Sorted(maps.Keys(s.names))...) {
		if strings.HasSuffix(key, "_token") && !slices.Contains(names, key) {
			names = append(names, key)
		}
	}
	for _, key := range names {
		value := s.config[key]
		if v, ok := s.names[key]; ok {
			value = v
		}
		m.append(specialToken(value))
	}
	for _, t := range extra {
		m.append(t)
	}
	return nil
}

// addNumbered adds the tokens that a file lists with their ids.
func (s *tokenSettings) addNumbered(m *merger) error {
	list, file := map[int32]addedToken{}, tokenizerConfigFile+": added_tokens_decoder"
	if s.listed() {
		var byID map[string]addedToken
		if err := json.Unmarshal(s.config["added_tokens_decoder"], &byID); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrBundle, file, err)
		}
		for key, t := range byID {
			id, err := strconv.ParseInt(key, 10, 32)
			if err != nil {
				return fmt.Errorf("%w: %s: %q is no token id", ErrBundle, file, key)
			}
			t.ID = int32(id)
			list[t.ID] = t
		}
	} else {
		file = addedTokensFile
		specials := map[string]bool{}
		for _, text := range s.specials() {
			specials[text] = true
		}
		extra, err := s.extras()
		if err != nil {
			return err
		}
		for _, t := range extra {
			specials[t.Content] = true
		}
		for text, id := range s.added {
			if m.has(text) && m.id(text) == id {
				continue // tokenizer.json says more about it
			}
			list[id] = addedToken{ID: id, Content: text, Special: specials[text], Normalized: !specials[text]}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(list)) {
		if err := m.put(list[id], file); err != nil {
			return err
		}
	}
	return nil
}

// extras returns the special tokens without a name of their own.
func (s *tokenSettings) extras() (list []addedToken, err error) {
	for _, key := range []string{"additional_special_tokens", "extra_special_tokens"} {
		file, value := tokenizerConfigFile, s.config[key]
		if v, ok := s.names[key]; ok {
			file, value = specialTokensFile, v
		}
		if len(value) == 0 || string(value) == "null" {
			continue
		}
		var several []json.RawMessage
		var named map[string]json.RawMessage
		switch {
		case json.Unmarshal(value, &several) == nil:
		case json.Unmarshal(value, &named) == nil:
			for _, name := range keysInOrder(value) {
				several = append(several, named[name])
			}
		default:
			return nil, fmt.Errorf("%w: %s: %s: want a list of tokens, or an object", ErrBundle, file, key)
		}
		for _, t := range several {
			list = append(list, specialToken(t))
		}
	}
	return list, nil
}

// merger adds tokens to those of a tokenizer.json.
type merger struct {
	vocab   map[string]int32
	added   []addedToken
	changed bool
}

func (m *merger) has(text string) bool { return m.find(text) >= 0 }

func (m *merger) find(text string) int {
	return slices.IndexFunc(m.added, func(t addedToken) bool { return t.Content == text })
}

// id returns the id of a token, or the next free one if there is no such token.
func (m *merger) id(text string) int32 {
	if i := m.find(text); i >= 0 {
		return m.added[i].ID
	}
	if id, ok := m.vocab[text]; ok {
		return id
	}
	next := int32(len(m.vocab))
	for _, t := range m.added {
		next = max(next, t.ID+1)
	}
	return next
}

// append adds a special token that has no id of its own, unless it is among the added
// tokens already.
func (m *merger) append(t addedToken) {
	if t.Content == "" || m.has(t.Content) {
		return
	}
	t.ID = m.id(t.Content)
	m.added, m.changed = append(m.added, t), true
}

// put adds a token that file numbers, or changes how it is found in texts.
func (m *merger) put(t addedToken, file string) error {
	if t.Content == "" {
		return fmt.Errorf("%w: %s: token %d is empty", ErrBundle, file, t.ID)
	}
	if id := m.id(t.Content); id != t.ID {
		what := "in " + tokenizerFile + " it has the id"
		if _, ok := m.vocab[t.Content]; !ok && !m.has(t.Content) {
			what = "the next free id of " + tokenizerFile + " is"
		}
		return fmt.Errorf("%w: %s gives the token %q the id %d, but %s %d, which other programs use: save the tokenizer again with save_pretrained, and check which row of the embedding the token was trained with",
			ErrBundle, file, t.Content, t.ID, what, id)
	}
	switch i := m.find(t.Content); {
	case i < 0:
		m.added, m.changed = append(m.added, t), true
	case m.added[i] != t:
		m.added[i], m.changed = t, true
	}
	return nil
}
