package reflector

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// entry is a line of a recording.
type entry struct {
	// Key is the QuestionKey.
	Key string `json:"key"`
	// Source is the key that the question has for the reflector that was recorded. Lines
	// that were written by hand need none.
	Source string `json:"source,omitempty"`
	Reply  Reply  `json:"reply"`
}

// QuestionKey returns the key of a question in a recording: a digest of its texts, its
// number of tokens and its try. It is the same for all reflectors, so that a recording
// replies in place of any of them.
func QuestionKey(q Question) string { return digest(append([]string{"question"}, q.texts()...)...) }

// readEntries returns the entries of a recording by key. Of several with one key, the first
// counts. A last line without its end, which a process that was killed leaves, is left out.
// size is the length of the lines that are complete, and open says that the last of these
// lacks its line break.
func readEntries(text []byte) (entries map[string]entry, size int, open bool, err error) {
	entries = map[string]entry{}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		var e entry
		err := json.Unmarshal(line, &e)
		ended := bytes.HasSuffix(line, []byte("\n"))
		switch {
		case len(bytes.TrimSpace(line)) == 0:
		case err != nil && !ended:
			return entries, size, false, nil
		case err != nil:
			return nil, 0, false, fmt.Errorf("line %d: %w", number, err)
		case e.Key == "":
			return nil, 0, false, fmt.Errorf(`line %d: want {"key": …, "reply": {"text": …}}`, number)
		default:
			if _, ok := entries[e.Key]; !ok {
				e.Reply = storable(e.Reply)
				entries[e.Key] = e
			}
		}
		size, open = size+len(line), !ended
	}
	return entries, size, open, nil
}

// replayed is a reflector that replies what another one once replied.
type replayed struct {
	file      string
	maxTokens int
	entries   map[string]entry
}

func replay(o Options) (Reflector, error) {
	text, err := os.ReadFile(o.File)
	if err != nil {
		return nil, fault("file", "read recording: %w", err)
	}
	entries, _, _, err := readEntries(text)
	if err != nil {
		return nil, fault("file", "read recording %s: %w", o.File, err)
	}
	return &replayed{o.File, o.MaxTokens, entries}, nil
}

// Reflect returns the recorded reply, or an error that wraps ErrNotRecorded.
func (r *replayed) Reflect(ctx context.Context, q Question) (Reply, error) {
	key := QuestionKey(q.complete(r.maxTokens))
	if e, ok := r.entries[key]; ok {
		return e.Reply, ctx.Err()
	}
	return Reply{}, fmt.Errorf("%w to the question %s: recording %s, %d replies", ErrNotRecorded, key, r.file, len(r.entries))
}

// Key depends on the recorded reply, which decides, and not on the file that it is in.
func (r *replayed) Key(q Question) string {
	q = q.complete(r.maxTokens)
	reply := "none"
	if e, ok := r.entries[QuestionKey(q)]; ok {
		text, err := json.Marshal(e.Reply)
		if err != nil {
			panic(err) // texts and numbers can be encoded
		}
		reply = "one " + string(text)
	}
	return digest(append([]string{string(Recorded), reply}, q.texts()...)...)
}

// Close does nothing: the recording was read whole.
func (r *replayed) Close() {}

// recording is a reflector that records the replies of another one.
type recording struct {
	Reflector
	maxTokens int
	mu        sync.Mutex
	file      *os.File
	size      int64
	entries   map[string]entry
}

// Record returns a reflector that asks another one and appends each reply to a file, which
// type Recorded replays. A question that the file already has is not asked again. If another
// reflector was asked it then, the error wraps ErrNotRecorded. A reply is in the file before
// it is returned; if it can't be written, it is not returned. Only one process at a time may
// record in a file. Close also closes the other reflector.
//
// A caller that stores replies asks a reflector only what it has not stored, so the file
// lacks what was stored before it was begun.
func Record(r Reflector, file string) (Reflector, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open recording: %w", err)
	}
	out := &recording{Reflector: r, maxTokens: maxTokensOf(r), file: f}
	if err := out.resume(); err != nil {
		return nil, errors.Join(fmt.Errorf("resume recording %s: %w", file, err), f.Close())
	}
	return out, nil
}

// maxTokensOf returns the number of tokens that a reflector of this package allows where
// the question does not say.
func maxTokensOf(r Reflector) int {
	switch r := r.(type) {
	case *server:
		return r.maxTokens
	case *program:
		return r.maxTokens
	case *replayed:
		return r.maxTokens
	}
	return 0
}

// resume reads what the file has and removes a line that was not finished.
func (r *recording) resume() error {
	text, err := io.ReadAll(r.file)
	if err != nil {
		return err
	}
	entries, size, open, err := readEntries(text)
	if err != nil {
		return err
	}
	r.entries, r.size = entries, int64(size)
	if err := r.file.Truncate(r.size); err != nil {
		return err
	}
	if open {
		return r.append([]byte("\n"))
	}
	return nil
}

// append writes at the end of the file, all of it or nothing.
func (r *recording) append(text []byte) error {
	_, err := r.file.WriteAt(text, r.size)
	if err == nil {
		err = r.file.Sync()
	}
	if err != nil {
		return errors.Join(err, r.file.Truncate(r.size))
	}
	r.size += int64(len(text))
	return nil
}

// Reflect asks, unless the reply is on record.
func (r *recording) Reflect(ctx context.Context, q Question) (Reply, error) {
	e := entry{Key: QuestionKey(q.complete(r.maxTokens)), Source: r.Key(q)}
	r.mu.Lock()
	known, ok := r.entries[e.Key]
	r.mu.Unlock()
	if ok {
		return r.same(known, e)
	}
	reply, err := r.Reflector.Reflect(ctx, q)
	if err != nil {
		return Reply{}, err
	}
	e.Reply = storable(reply)
	return r.keep(e)
}

// keep records a reply. If the same was asked at the same time, the first reply counts.
func (r *recording) keep(e entry) (Reply, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return Reply{}, fmt.Errorf("encode reply: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.entries[e.Key]; ok {
		return r.same(known, e)
	}
	if err := r.append(append(text, '\n')); err != nil {
		return Reply{}, fmt.Errorf("record reply in %s: %w", r.file.Name(), err)
	}
	r.entries[e.Key] = e
	return e.Reply, nil
}

// same returns a recorded reply if it is one of this reflector.
func (r *recording) same(known, e entry) (Reply, error) {
	if known.Source != e.Source {
		return Reply{}, fmt.Errorf("%w: %s has the reply of another reflector to the question %s; record in another file", ErrNotRecorded, r.file.Name(), e.Key)
	}
	return known.Reply, nil
}

// Close closes the file and the recorded reflector.
func (r *recording) Close() {
	_ = r.file.Close() // each reply was synced before it was returned
	r.Reflector.Close()
}
