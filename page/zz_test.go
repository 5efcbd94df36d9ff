package page_test

import (
	"fmt"
	"os"
	"testing"
	"time"
)

func TestZZServe(t *testing.T) {
	if os.Getenv("ZZ") == "" {
		t.Skip()
	}
	text := os.Getenv("ZZ")
	if text == "hostile" {
		text = hostile
	}
	at := newUsed(t, text).serve(nil).URL
	os.WriteFile("/tmp/zz.url", []byte(at), 0o644)
	fmt.Println(at)
	time.Sleep(40 * time.Minute)
}
