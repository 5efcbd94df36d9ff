package dialog

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/model"
)

// ErrCodec is wrapped by the error of Named.
var ErrCodec = errors.New("unknown codec")

// Constrain makes the constraint of a form in the codec that it names.
func Constrain(form model.Form) (model.Constraint, error) {
	codec, err := Named(form.Codec)
	if err != nil {
		return nil, err
	}
	return codec.Constrain(form)
}

// Named returns the codec that a spec calls name, if it needs nothing but its name.
func Named(name string) (Codec, error) {
	switch {
	case name == CompactName:
		return Compact(), nil
	case name == MessagesName:
		return Messages(), nil
	case strings.HasPrefix(name, TemplatePrefix):
		return nil, fmt.Errorf("%w %q: it is made of the bundle that was stored under this digest", ErrCodec, name)
	}
	return nil, fmt.Errorf("%w %q: want %q or %q", ErrCodec, name, CompactName, MessagesName)
}
