package torch_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/fulgurite/fulgurite/model/engine/torch"
)

// envHold makes this test program open an engine, say where its program is, and wait to
// be killed.
const envHold = "FULGURITE_TEST_TORCH_HOLD"

func TestMain(m *testing.M) {
	if os.Getenv(envHold) != "" {
		hold()
	}
	goleak.VerifyTestMain(afterwards{m})
}

// afterwards closes the engine that tests share.
type afterwards struct{ *testing.M }

func (a afterwards) Run() int {
	defer func() {
		if common.Engine != nil {
			common.Close()
		}
		if published.dir != "" {
			_ = os.RemoveAll(published.dir) // of a test that is over
		}
	}()
	return a.M.Run()
}

func hold() {
	e, err := torch.New(torch.Options{Device: "cpu", Threads: 1})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(e.PID(), e.Dir())
	<-make(chan int) // until it is killed
}
