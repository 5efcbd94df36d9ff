package agent

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// quotedBytes is how much of an answer that is no result stands in an error.
const quotedBytes = 200

// errTooLong is returned for an answer of more than serviceBytes.
var errTooLong = errors.New("too long")

// wanted ends the errors about answers that can't be told from those of a proxy.
const wanted = `want JSON {"result": …}, or text as text/plain`

// answer turns a service's answer into a result. Whatever the service's own code need not
// have written is a fault, since the agent has nothing to do with it: most statuses, and
// bodies of other kinds than JSON and text.
func answer(response *http.Response, body []byte, limit float64) (Result, error) {
	body, err := decompressed(response.Header.Get("Content-Encoding"), body)
	switch status := response.StatusCode; {
	case status == http.StatusBadRequest, status == http.StatusUnprocessableEntity, status == http.StatusInternalServerError:
		message := strings.TrimSpace(fmt.Sprintf("service answered %s: %s", response.Status, shortened(body)))
		return Result{Failure: Error, Message: message}, nil
	case status >= 300 && status <= 399 && response.Header.Get("Location") != "":
		return Result{}, fmt.Errorf("service answered %s and names another address, %.300q: redirects are not followed, so let agent.service.url be the final address",
			response.Status, response.Header.Get("Location"))
	case status == http.StatusAccepted:
		return Result{}, fmt.Errorf("service answered %s, which is no result: it has to answer with status 200 when its agent is done", response.Status)
	case status != http.StatusOK && status != http.StatusCreated:
		return Result{}, fmt.Errorf("service answered %s: %s", response.Status, shortened(body))
	case errors.Is(err, errTooLong) || len(body) > serviceBytes:
		return Result{Failure: OutputLimit, Message: fmt.Sprintf("answered more than %d bytes", serviceBytes)}, nil
	case err != nil:
		return Result{}, fmt.Errorf("service answered %s: %w", response.Status, err)
	}
	text, err := textOf(response.Header.Get("Content-Type"), body)
	if err != nil {
		return Result{}, fmt.Errorf("service answered %s: %w", response.Status, err)
	}
	return ReadReply(text, limit), nil
}

// decompressed returns the body without its content coding.
func decompressed(coding string, body []byte) ([]byte, error) {
	switch strings.ToLower(strings.TrimSpace(coding)) {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
		r, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("its body is not in gzip, as Content-Encoding says: %w", err)
		}
		plain, err := io.ReadAll(io.LimitReader(r, serviceBytes+1))
		switch {
		case err != nil:
			return nil, fmt.Errorf("its body in gzip can't be read: %w", err)
		case len(plain) > serviceBytes:
			return nil, errTooLong
		}
		return plain, nil
	}
	return nil, fmt.Errorf("its Content-Encoding %.80q can't be read: want none, or gzip", coding)
}

// textOf returns the body in UTF-8 if it is an answer: text, a JSON text, number or truth
// value, or an object with a result or a reward.
func textOf(contentType string, body []byte) ([]byte, error) {
	kind, charset, err := mediaType(contentType)
	if err != nil {
		return nil, err
	}
	declared := kind == "application/json" || strings.HasSuffix(kind, "+json")
	if !declared && kind != "" && kind != "text/plain" && kind != "text/markdown" {
		return nil, fmt.Errorf("content type %.80q is no result, %s; it begins with %.*q", kind, wanted, quotedBytes, body)
	}
	text, err := inUTF8(charset, body)
	if err != nil {
		return nil, err
	}
	text = bytes.TrimSpace(text)
	switch {
	case len(text) == 0:
		return nil, fmt.Errorf(`its body is empty, which is no result: answer {"result": ""} if the agent's result is an empty text`)
	case bytes.ContainsFunc(text, isBinary):
		return nil, fmt.Errorf("its body is binary, %s; it begins with %.*q", wanted, quotedBytes, text)
	case !declared && strings.HasPrefix(http.DetectContentType(text), "text/html"):
		return nil, fmt.Errorf(`its body is an HTML page, %s; an agent whose result is a page answers {"result": "<html…"}; it begins with %.*q`, wanted, quotedBytes, text)
	case kind == "" && isEventStream(text):
		return nil, fmt.Errorf("its body is a stream of events, %s; it begins with %.*q", wanted, quotedBytes, text)
	}
	return text, checkJSON(text, declared)
}

// mediaType reads a content type. Both results are empty if there is none.
func mediaType(contentType string) (kind, charset string, err error) {
	if strings.TrimSpace(contentType) == "" {
		return "", "", nil
	}
	kind, parameters, err := mime.ParseMediaType(contentType)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return "", "", fmt.Errorf("its content type %.80q can't be read: %w", contentType, err)
	}
	return kind, strings.ToLower(parameters["charset"]), nil
}

// inUTF8 decodes a body. A byte order mark says more than the charset, which many servers
// name by habit.
func inUTF8(charset string, body []byte) ([]byte, error) {
	switch {
	case bytes.HasPrefix(body, []byte("\xEF\xBB\xBF")):
		charset, body = "utf-8", body[3:]
	case bytes.HasPrefix(body, []byte("\xFF\xFE")):
		charset, body = "utf-16le", body[2:]
	case bytes.HasPrefix(body, []byte("\xFE\xFF")):
		charset, body = "utf-16be", body[2:]
	}
	switch charset {
	case "", "utf-8", "utf8", "us-ascii", "ascii":
		if !utf8.Valid(body) {
			return nil, fmt.Errorf("its body is not UTF-8, %s; it begins with %.*q", wanted, quotedBytes, body)
		}
		return body, nil
	case "utf-16", "utf-16be":
		return fromUTF16(binary.BigEndian, body)
	case "utf-16le":
		return fromUTF16(binary.LittleEndian, body)
	case "iso-8859-1", "latin1":
		text := make([]rune, len(body))
		for i, b := range body {
			text[i] = rune(b)
		}
		return []byte(string(text)), nil
	}
	return nil, fmt.Errorf("its charset %.80q can't be read: answer in UTF-8", charset)
}

func fromUTF16(order binary.ByteOrder, body []byte) ([]byte, error) {
	if len(body)%2 != 0 {
		return nil, fmt.Errorf("its body of %d bytes is not UTF-16: answer in UTF-8", len(body))
	}
	units := make([]uint16, len(body)/2)
	for i := range units {
		units[i] = order.Uint16(body[2*i:])
	}
	return []byte(string(utf16.Decode(units))), nil
}

// isBinary reports whether a character appears in no text.
func isBinary(r rune) bool {
	return r < ' ' && !strings.ContainsRune("\t\n\v\f\r\b\x1b", r)
}

// isEventStream reports whether a text begins as server-sent events do.
func isEventStream(text []byte) bool {
	for _, field := range []string{"data:", "event:", "id:", "retry:"} {
		if bytes.HasPrefix(text, []byte(field)) {
			return bytes.Contains(text, []byte("\ndata:")) || field == "data:"
		}
	}
	return false
}

// checkJSON returns an error for JSON that is no result: an object of another kind, which
// may be anybody's report of an error or of a start, and a list. declared says that the
// body has to be JSON.
func checkJSON(text []byte, declared bool) error {
	text = withoutNaN(text)
	if !json.Valid(text) {
		if declared {
			return fmt.Errorf("its body is not JSON, as its content type says; it begins with %.*q", quotedBytes, text)
		}
		return nil
	}
	switch text[0] {
	case '[':
		return fmt.Errorf(`its body is a list, which is no result: answer {"result": […]}; it begins with %.*q`, quotedBytes, text)
	case '{':
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(text, &fields); err != nil {
			return fmt.Errorf("its body can't be read: %w", err)
		}
		if _, ok := fields["result"]; ok {
			return nil
		}
		if _, ok := fields["reward"]; ok {
			return nil
		}
		if _, ok := retryOf(fields); ok {
			return nil
		}
		return fmt.Errorf(`its body is an object without "result" and "reward", which is no result: answer {"result": …}, or status 500 if the agent has failed; it begins with %.*q`, quotedBytes, text)
	}
	return nil
}
