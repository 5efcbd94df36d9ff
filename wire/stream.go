package wire

import (
	"bytes"
	"encoding/json"
	jsonv2 "encoding/json/v2"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Stream writes a reply piece by piece. Each method returns whole events, or nothing.
// Sent in the order of the calls, the events have the content of the body of the same
// reply. They depend only on the request and on the calls of these methods. A stream is
// not safe for concurrent use.
type Stream struct {
	request *Request
	writer  replyWriter
	choices []progress
	begun   bool
	ended   bool
	err     error
}

// replyWriter writes a reply as an API streams it.
type replyWriter interface {
	begin(*events)
	// reasoning and content add to a choice: its reasoning, or its text with the
	// log-probabilities of its tokens. Empty text only opens the element that holds text.
	reasoning(e *events, choice int, text string)
	content(e *events, choice int, text string, logprobs []Token)
	// end writes the events after all text.
	end(*events, Reply)
	keepalive(*events)
	fail(*events, *Failure)
}

// progress is how far a choice has been written.
type progress struct {
	reasoning string
	content   strings.Builder
	written   int // bytes of the content that were written, without half a character
	logprobs  []Token
	shown     int // how many of the logprobs were written: they are sent with text
}

// Open begins a stream. The head is a reply without its choices.
func (r *Request) Open(head Reply) *Stream {
	if head.Model == "" {
		head.Model = r.Model
	}
	s := &Stream{request: r, choices: make([]progress, r.choices())}
	switch r.API {
	case Completions:
		s.writer = &completionsWriter{request: r, head: head, offsets: make([]int, r.choices())}
	case Responses:
		s.writer = &responsesWriter{request: r, head: head}
	case Messages:
		s.writer = &messagesWriter{head: head}
	default:
		s.writer = &chatWriter{request: r, head: head}
	}
	return s
}

// Begin returns the events before all text. If it is not called, the first other piece
// begins with them.
func (s *Stream) Begin() []byte {
	e := newEvents()
	s.begin(e)
	return e.Bytes()
}

func (s *Stream) begin(e *events) {
	if !s.begun {
		s.begun = true
		s.writer.begin(e)
	}
}

// Reasoning adds to a choice's reasoning, which comes before its text.
func (s *Stream) Reasoning(choice int, text string) []byte {
	if !s.accepts(choice) || text == "" {
		return nil
	}
	p := &s.choices[choice]
	if p.content.Len() > 0 {
		s.misuse(fmt.Errorf("choice %d thinks after it has hasContent", choice))
		return nil
	}
	e := newEvents()
	s.begin(e)
	// The caller cuts reasoning between characters.
	p.reasoning += text
	s.writer.reasoning(e, choice, text)
	return e.Bytes()
}

// Content adds text to a choice. The log-probabilities belong to the tokens of the text
// so far; they are sent with the next text.
func (s *Stream) Content(choice int, text string, logprobs []Token) []byte {
	if !s.accepts(choice) {
		return nil
	}
	p := &s.choices[choice]
	p.content.WriteString(text)
	if s.request.Logprobs {
		p.logprobs = append(p.logprobs, logprobs...)
	}
	text = p.content.String()[p.written:]
	text = text[:whole(text)]
	if text == "" {
		return nil
	}
	e := newEvents()
	s.begin(e)
	s.write(e, choice, text, p.logprobs[p.shown:])
	return e.Bytes()
}

func (s *Stream) write(e *events, choice int, text string, logprobs []Token) {
	p := &s.choices[choice]
	p.written += len(text)
	p.shown += len(logprobs)
	s.writer.content(e, choice, text, logprobs)
}

// End returns all events that were not written yet, to the last one. The reply has to
// begin with the text that was written. Reasoning that was not written before the text
// comes after it.
func (s *Stream) End(reply Reply) ([]byte, error) {
	if err := s.mayEnd(reply); err != nil {
		return nil, fmt.Errorf("end stream %s: %w", s.request.API.ReplyID(reply.ID), err)
	}
	s.ended = true
	reply = s.request.onlyAsked(reply)
	e := newEvents()
	s.begin(e)
	for i, c := range reply.Choices {
		p := &s.choices[i]
		late := p.written > 0
		if !late {
			s.writeReasoning(e, i, c.Message.Reasoning)
		}
		text, logprobs := c.Message.Content[p.written:], c.Logprobs[min(p.shown, len(c.Logprobs)):]
		if text != "" || len(logprobs) > 0 || p.written == 0 && c.hasText() {
			s.write(e, i, text, logprobs)
		}
		if late {
			s.writeReasoning(e, i, c.Message.Reasoning)
		}
	}
	s.writer.end(e, reply)
	return e.Bytes(), nil
}

// writeReasoning writes the rest of a choice's reasoning.
func (s *Stream) writeReasoning(e *events, choice int, all string) {
	if rest := all[len(s.choices[choice].reasoning):]; rest != "" {
		s.writer.reasoning(e, choice, rest)
	}
}

// mayEnd checks a reply against the text that was written.
func (s *Stream) mayEnd(reply Reply) error {
	if s.ended {
		return errors.New("it is over")
	}
	if s.err != nil {
		return s.err
	}
	if err := s.request.check(reply); err != nil {
		return err
	}
	for i, c := range reply.Choices {
		p := &s.choices[i]
		switch {
		case !strings.HasPrefix(c.Message.Content, p.content.String()):
			return fmt.Errorf("the content of choice %d does not begin with what was handed out", i)
		case !strings.HasPrefix(c.Message.Reasoning, p.reasoning),
			p.written > 0 && p.reasoning != "" && p.reasoning != c.Message.Reasoning:
			return fmt.Errorf("the reasoning of choice %d is not what was handed out", i)
		case len(p.logprobs) > len(c.Logprobs) || !slices.EqualFunc(p.logprobs, c.Logprobs[:len(p.logprobs)], Token.equal):
			return fmt.Errorf("the log-probabilities of choice %d do not begin with those handed out", i)
		}
	}
	return nil
}

// Keepalive returns an event without meaning, for a client that has waited long.
func (s *Stream) Keepalive() []byte {
	e := newEvents()
	if !s.begun {
		e.comment("keepalive") // clients of Messages want message_start first
		return e.Bytes()
	}
	s.writer.keepalive(e)
	return e.Bytes()
}

// Fail ends the stream with an error.
func (s *Stream) Fail(f *Failure) []byte {
	s.ended = true
	e := newEvents()
	s.writer.fail(e, f)
	return e.Bytes()
}

// accepts reports whether more may be added to a choice.
func (s *Stream) accepts(choice int) bool {
	switch {
	case choice < 0 || choice >= len(s.choices):
		s.misuse(fmt.Errorf("there is no choice %d", choice))
	case s.ended:
		s.misuse(errors.New("it is over"))
	}
	return s.err == nil
}

// misuse keeps the caller's first mistake, for End.
func (s *Stream) misuse(err error) {
	if s.err == nil {
		s.err = err
	}
}

// whole returns the length of a text without an incomplete character at its end.
func whole(text string) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRuneInString(tail) {
				return len(text) - n
			}
			break
		}
	}
	return len(text)
}

// events holds server-sent events that are being written.
type events struct{ bytes.Buffer }

// newEvents returns events with room for an event of one token.
func newEvents() *events {
	var e events
	e.Grow(256)
	return &e
}

// add writes an event; Chat and Completions give theirs no name.
func (e *events) add(name string, v any) {
	if name != "" {
		e.WriteString("event: " + name + "\n")
	}
	e.WriteString("data: ")
	e.json(v)
	e.WriteString("\n\n")
}

// json writes v in one line: JSON escapes line breaks within texts.
func (e *events) json(v any) {
	if err := jsonv2.MarshalWrite(&e.Buffer, v, json.DefaultOptionsV1()); err != nil {
		panic(fmt.Errorf("encode %T: %w", v, err)) // unreachable
	}
}

// done writes the event after which nothing follows in Chat and Completions.
func (e *events) done() { e.WriteString("data: [DONE]\n\n") }

// comment writes a comment, which clients skip.
func (e *events) comment(text string) { e.WriteString(": " + text + "\n\n") }
