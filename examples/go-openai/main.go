// Command go-openai asks the model once and reads its reply as it comes.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	openai "github.com/sashabaranov/go-openai"
)

func main() {
	log.SetFlags(0)
	var task struct{ Input string }
	if err := json.NewDecoder(os.Stdin).Decode(&task); err != nil {
		log.Fatal(err)
	}
	config := openai.DefaultConfig(os.Getenv("OPENAI_API_KEY"))
	config.BaseURL = os.Getenv("OPENAI_BASE_URL") // this client does not read the variable itself
	if err := ask(context.Background(), openai.NewClientWithConfig(config), task.Input); err != nil {
		log.Fatal(err)
	}
}

func ask(ctx context.Context, client *openai.Client, topic string) error {
	stream, err := client.CreateChatCompletionStream(ctx, openai.ChatCompletionRequest{
		Model: openai.GPT4oMini,
		Messages: []openai.ChatCompletionMessage{
			{Role: openai.ChatMessageRoleSystem, Content: "Write a line about the topic."},
			{Role: openai.ChatMessageRoleUser, Content: topic},
		},
	})
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			fmt.Println()
			return nil
		}
		if err != nil {
			return err
		}
		if len(chunk.Choices) > 0 {
			fmt.Print(chunk.Choices[0].Delta.Content)
		}
	}
}
