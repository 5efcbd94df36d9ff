package wire

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Stream writes a reply piece by piece. What each method returns is whole events, or
// nothing, to be sent in that order; put together, they say what the body of the
// same reply says. The events are a function of the request and of the calls made
// alone. A stream is not safe for concurrent use.
type Stream struct {
	request *Request
	script  script
	told    []progress
	begun   bool
	over    bool
	wrong   error
}

// script is how an API tells a reply.
type script interface {
	begin(*events)
	// reason and say go on with a choice: thoughts, or text with the
	// log-probabilities of its tokens. Text that is empty opens what text is in.
	reason(e *events, choice int, text string)
	say(e *events, choice int, text string, logprobs []Token)
	// end tells what comes after all text.
	end(*events, Reply)
	alive(*events)
	fail(*events, *Failure)
}

// progress is how far a choice has been told.
type progress struct {
	reasoning string
	content   strings.Builder
	said      int // bytes of the content: a character is sent whole
	logprobs  []Token
	shown     int // of the logprobs: they go with text
}

// Open begins a stream. The head is a reply but for its choices.
func (r *Request) Open(head Reply) *Stream {
	if head.Model == "" {
		head.Model = r.Model
	}
	s := &Stream{request: r, told: make([]progress, r.choices())}
	switch r.API {
	case Completions:
		s.script = &completionsScript{request: r, head: head, offsets: make([]int, r.choices())}
	case Responses:
		s.script = &responsesScript{request: r, head: head}
	case Messages:
		s.script = &messagesScript{head: head}
	default:
		s.script = &chatScript{request: r, head: head}
	}
	return s
}

// Begin is what comes before all text. Where it is not called, the first other
// piece begins with it.
func (s *Stream) Begin() []byte {
	var e events
	s.begin(&e)
	return e.Bytes()
}

func (s *Stream) begin(e *events) {
	if !s.begun {
		s.begun = true
		s.script.begin(e)
	}
}

// Reasoning goes on with a choice's thoughts, which come before its text.
func (s *Stream) Reasoning(choice int, text string) []byte {
	if !s.goesOn(choice) || text == "" {
		return nil
	}
	p := &s.told[choice]
	if p.content.Len() > 0 {
		s.spoil(fmt.Errorf("choice %d thinks after it has spoken", choice))
		return nil
	}
	var e events
	s.begin(&e)
	// Thoughts are cut between characters by whoever hands them out.
	p.reasoning += text
	s.script.reason(&e, choice, text)
	return e.Bytes()
}

// Content goes on with a choice's text. The log-probabilities are those of tokens
// that the text so far came from; they are sent with the next text.
func (s *Stream) Content(choice int, text string, logprobs []Token) []byte {
	if !s.goesOn(choice) {
		return nil
	}
	p := &s.told[choice]
	p.content.WriteString(text)
	if s.request.Logprobs {
		p.logprobs = append(p.logprobs, logprobs...)
	}
	text = p.content.String()[p.said:]
	text = text[:whole(text)]
	if text == "" {
		return nil
	}
	var e events
	s.begin(&e)
	s.say(&e, choice, text, p.logprobs[p.shown:])
	return e.Bytes()
}

func (s *Stream) say(e *events, choice int, text string, logprobs []Token) {
	p := &s.told[choice]
	p.said += len(text)
	p.shown += len(logprobs)
	s.script.say(e, choice, text, logprobs)
}

// End is all that was not said yet, to the last event. The reply has to go on from
// what was handed out. Thoughts that nobody handed out before the text come after
// it.
func (s *Stream) End(reply Reply) ([]byte, error) {
	if err := s.mayEnd(reply); err != nil {
		return nil, fmt.Errorf("end stream %s: %w", s.request.API.ReplyID(reply.ID), err)
	}
	s.over = true
	reply = s.request.asked(reply)
	var e events
	s.begin(&e)
	for i, c := range reply.Choices {
		p := &s.told[i]
		late := p.said > 0
		if !late {
			s.reasonOn(&e, i, c.Message.Reasoning)
		}
		text, logprobs := c.Message.Content[p.said:], c.Logprobs[min(p.shown, len(c.Logprobs)):]
		if text != "" || len(logprobs) > 0 || p.said == 0 && c.speaks() {
			s.say(&e, i, text, logprobs)
		}
		if late {
			s.reasonOn(&e, i, c.Message.Reasoning)
		}
	}
	s.script.end(&e, reply)
	return e.Bytes(), nil
}

// reasonOn tells the rest of a choice's thoughts.
func (s *Stream) reasonOn(e *events, choice int, all string) {
	if rest := all[len(s.told[choice].reasoning):]; rest != "" {
		s.script.reason(e, choice, rest)
	}
}

// mayEnd compares a reply with what was handed out of it.
func (s *Stream) mayEnd(reply Reply) error {
	if s.over {
		return errors.New("it is over")
	}
	if s.wrong != nil {
		return s.wrong
	}
	if err := s.request.check(reply); err != nil {
		return err
	}
	for i, c := range reply.Choices {
		p := &s.told[i]
		switch {
		case !strings.HasPrefix(c.Message.Content, p.content.String()):
			return fmt.Errorf("the content of choice %d does not begin with what was handed out", i)
		case !strings.HasPrefix(c.Message.Reasoning, p.reasoning),
			p.said > 0 && p.reasoning != "" && p.reasoning != c.Message.Reasoning:
			return fmt.Errorf("the reasoning of choice %d is not what was handed out", i)
		case len(p.logprobs) > len(c.Logprobs) || !slices.EqualFunc(p.logprobs, c.Logprobs[:len(p.logprobs)], Token.equal):
			return fmt.Errorf("the log-probabilities of choice %d do not begin with those handed out", i)
		}
	}
	return nil
}

// Keepalive is an event without meaning, for a client that has waited long.
func (s *Stream) Keepalive() []byte {
	var e events
	if !s.begun {
		e.comment("keepalive") // clients of Messages want message_start first
		return e.Bytes()
	}
	s.script.alive(&e)
	return e.Bytes()
}

// Fail ends the stream with an error.
func (s *Stream) Fail(f *Failure) []byte {
	s.over = true
	var e events
	s.script.fail(&e, f)
	return e.Bytes()
}

// goesOn reports whether a choice may be gone on with.
func (s *Stream) goesOn(choice int) bool {
	switch {
	case choice < 0 || choice >= len(s.told):
		s.spoil(fmt.Errorf("there is no choice %d", choice))
	case s.over:
		s.spoil(errors.New("it is over"))
	}
	return s.wrong == nil
}

// spoil keeps the first mistake of whoever hands out the pieces, for End.
func (s *Stream) spoil(err error) {
	if s.wrong == nil {
		s.wrong = err
	}
}

// whole is how much of a text does not end within a character.
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

// events are server-sent events in the making.
type events struct{ bytes.Buffer }

// add writes an event; Chat and Completions give theirs no name.
func (e *events) add(name string, v any) {
	if name != "" {
		e.WriteString("event: " + name + "\n")
	}
	e.WriteString("data: ")
	e.Write(marshal(v)) // one line: JSON escapes those within texts
	e.WriteString("\n\n")
}

// done tells that nothing follows, as Chat and Completions do.
func (e *events) done() { e.WriteString("data: [DONE]\n\n") }

// comment writes what clients skip.
func (e *events) comment(text string) { e.WriteString(": " + text + "\n\n") }
