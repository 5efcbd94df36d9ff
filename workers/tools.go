package workers

import (
	"context"
	"fmt"
	"io"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/internal/build"
	"github.com/fulgurite/fulgurite/internal/trust"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/retrieval"
)

// toolsCommand serves a tool that finds paragraphs to agents. It needs neither a store
// nor Temporal.
type toolsCommand struct {
	common    `embed:""`
	listening `embed:""`

	Corpus []string `help:"File of paragraphs: of MuSiQue, HotpotQA or 2WikiMultihopQA, or rows with title and text. May be given several times." required:"" env:"FULGURITE_CORPUS" placeholder:"FILE" type:"path"`
}

// Run serves until a signal comes.
func (c *toolsCommand) Run(ctx context.Context, stderr io.Writer) error {
	return c.serve(ctx, stderr, c.setUp)
}

func (c *toolsCommand) setUp(ctx context.Context, p *process) error {
	key, err := trust.ReadKey(trust.ToolsKey)
	if err != nil {
		return err
	}
	if err := c.check(p, trust.ToolsKey, key); err != nil {
		return err
	}
	var corpus []tasks.Paragraph
	for _, path := range c.Corpus {
		list, err := tasks.ReadParagraphs(path)
		if err != nil {
			return fmt.Errorf("--corpus: %w", err)
		}
		corpus = append(corpus, list...)
	}
	index, err := retrieval.NewIndex(ctx, corpus)
	if err != nil {
		return err
	}
	p.OnClose(func(context.Context) error { return index.Close() })
	url, err := p.serveHTTP(ctx, c.listening, trust.RequireKey(key, trust.ToolsKey, retrieval.NewServer(index, build.This("").Version, p.log.Named("tools"))))
	if err != nil {
		return err
	}
	p.log.Info("serving paragraphs", zap.Int("count", index.Count()), zap.String("search", url+"/search"), zap.String("mcp", url+"/mcp"))
	return nil
}
