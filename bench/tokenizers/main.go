// Command tokenizers measures how fast texts are tokenized on one thread.
// bench/tokenizers/run measures it and the reference implementation in turns, on the same
// texts.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/fulgurite/fulgurite/model/tokenizer"
)

func main() {
	path := flag.String("tokenizer", "", "tokenizer.json")
	seconds := flag.Float64("seconds", 3, "at least so long")
	flag.Parse()
	if err := run(*path, *seconds, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run encodes each file as one text, again and again, and prints the megabytes a second
// and the number of tokens.
func run(path string, seconds float64, files []string) error {
	settings, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	bpe, err := tokenizer.FromJSON(settings)
	if err != nil {
		return err
	}
	var texts []string
	size := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		texts, size = append(texts, string(text)), size+len(text)
	}
	tokens, done, began := 0, 0, time.Now()
	for time.Since(began).Seconds() < seconds {
		tokens = 0
		for _, text := range texts {
			tokens += len(bpe.Encode(text))
		}
		done += size
	}
	fmt.Printf("%.2f %d\n", float64(done)/1e6/time.Since(began).Seconds(), tokens)
	return nil
}
