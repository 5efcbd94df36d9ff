package agent_test

import (
	"context"
	"fmt"
	"os"

	"github.com/fulgurite/fulgurite/agent"
)

// playLaunch is a concealed worker. Its first agent looks at it and then hangs, its
// second takes the first one's home.
func playLaunch() {
	must(agent.Conceal())
	scratch, err := os.MkdirTemp("", "fulgurite-conceal")
	must(err)
	defer func() { must(os.RemoveAll(scratch)) }()
	j := job("concealed")
	j.Execution = "x"
	looked := make(chan struct{}, 1)
	j.Progress = func() {
		select {
		case looked <- struct{}{}:
		default:
		}
	}
	look := fmt.Sprintf(`if cat /proc/%d/environ > /dev/null 2>&1; then echo worker true; else echo worker false; fi; sleep 600`, os.Getpid())
	first := start(context.Background(), agent.Command{Args: sh(look), Scratch: scratch}, j)
	<-looked
	k := j
	k.Address.Attempt, k.Progress = 2, nil
	second := <-start(context.Background(), agent.Command{Args: sh("echo done"), Scratch: scratch}, k)
	must(second.err)
	one := <-first
	fmt.Print(one.result.Output.Stdout)
	fmt.Println("first taken over:", one.err != nil || one.result.Failed())
	fmt.Println("second:", second.result.Text)
}
