package fleet

import (
	"fmt"
	"os"
	"time"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/prompts/reflector"
	"github.com/fulgurite/fulgurite/spec"
)

// Reflector returns the reflector that a spec describes, for activities.Coordinator. A
// missing API key is an error that is tried again, because the person who starts the worker
// can set one.
func Reflector(of spec.Reflector) (reflector.Reflector, error) {
	o := reflector.Options{
		Type: reflector.Type(of.Type), URL: of.URL, Model: of.Model, Command: of.Command, Dir: of.Directory, File: of.File,
		Timeout: time.Duration(of.Seconds * float64(time.Second)), MaxTokens: of.MaxTokens,
	}
	if of.Key != "" {
		if o.Key = os.Getenv(of.Key); o.Key == "" {
			return nil, fmt.Errorf("optimizer.reflector.key: the environment variable %s is not set for this worker: start it with the reflector's API key there", shell.Quote(of.Key))
		}
	}
	return reflector.New(o)
}
