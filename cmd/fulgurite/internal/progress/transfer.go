package progress

import (
	"io"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Transfer shows how many bytes of something long are done. Without a terminal it shows
// nothing.
type Transfer struct {
	progress *mpb.Progress
	bar      *mpb.Bar
	total    int64
}

// NewTransfer starts to show a transfer with the given name.
func NewTransfer(w io.Writer, isTTY bool, name string) *Transfer {
	t := &Transfer{}
	if isTTY {
		t.progress = mpb.New(mpb.WithOutput(w), mpb.WithAutoRefresh(), mpb.WithWidth(barWidth))
		t.bar = t.progress.New(0, mpb.BarStyle().Lbound("").Rbound("").Filler("█").Tip("█").Padding("░"),
			mpb.PrependDecorators(decor.Name("  "+name+" "), decor.CountersKibiByte("% .1f of % .1f ")),
			mpb.AppendDecorators(decor.AverageSpeed(decor.SizeB1024(0), " % .1f"), decor.AverageETA(decor.ET_STYLE_GO, decor.WC{W: 8})))
	}
	return t
}

// Set sets how many bytes are done.
func (t *Transfer) Set(done, total int64) {
	if t.bar == nil {
		return
	}
	if total != t.total {
		t.total = total
		t.bar.SetTotal(total, false)
	}
	t.bar.SetCurrent(done)
}

// Close draws once more and ends the drawing.
func (t *Transfer) Close() {
	if t.bar != nil {
		t.bar.Abort(false)
		t.progress.Wait()
	}
}
