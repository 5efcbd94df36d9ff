// Command openai-go asks the model with OpenAI's client for Go and lets it use a tool.
// With -stream it reads the replies while they stream.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"

	"github.com/openai/openai-go/v3"
)

func main() {
	log.SetFlags(0)
	stream := flag.Bool("stream", false, "read replies as they come")
	flag.Parse()
	var task struct{ Input string }
	if err := json.NewDecoder(os.Stdin).Decode(&task); err != nil {
		log.Fatal(err)
	}
	ask := whole
	if *stream {
		ask = streamed
	}
	answer, err := talk(context.Background(), ask, task.Input)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer)
}

// talk asks until the model has an answer.
func talk(ctx context.Context, ask func(context.Context, *openai.Client, openai.ChatCompletionNewParams) (*openai.ChatCompletion, error), question string) (string, error) {
	client := openai.NewClient()
	p := openai.ChatCompletionNewParams{
		Model:    openai.ChatModelGPT4oMini,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("Talk about the weather."), openai.UserMessage(question)},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
			Name:        "temperature",
			Description: openai.String("The temperature in a city."),
			Parameters: openai.FunctionParameters{
				"type": "object", "properties": map[string]any{"city": map[string]string{"type": "string"}}, "required": []string{"city"},
			},
		})},
	}
	for {
		reply, err := ask(ctx, &client, p)
		if err != nil {
			return "", err
		}
		if len(reply.Choices) == 0 {
			return "", errors.New("a reply without choices")
		}
		message := reply.Choices[0].Message
		if len(message.ToolCalls) == 0 {
			return message.Content, nil
		}
		p.Messages = append(p.Messages, message.ToParam())
		for _, call := range message.ToolCalls {
			p.Messages = append(p.Messages, openai.ToolMessage("21", call.ID))
		}
	}
}

func whole(ctx context.Context, client *openai.Client, p openai.ChatCompletionNewParams) (*openai.ChatCompletion, error) {
	return client.Chat.Completions.New(ctx, p)
}

func streamed(ctx context.Context, client *openai.Client, p openai.ChatCompletionNewParams) (*openai.ChatCompletion, error) {
	stream := client.Chat.Completions.NewStreaming(ctx, p)
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		all.AddChunk(stream.Current())
	}
	return &all.ChatCompletion, stream.Err()
}
