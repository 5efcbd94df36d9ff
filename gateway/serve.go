package gateway

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net/http"
	"strconv"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	// servedTokens is the most tokens of a served reply unless the client says.
	servedTokens = 1024
	// hottest is the highest temperature that OpenAI's API allows.
	hottest = 2
)

// serve answers outside attempts, with the version and settings that the client
// names.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	request, err := decodeChat(body)
	if err != nil {
		return err
	}
	decode, err := servedSettings(request)
	if err != nil {
		return err
	}
	version, codecName, err := g.resolve(r, request.model)
	if err != nil {
		return err
	}
	codec, err := g.config.Codecs(codecName)
	if err != nil {
		return fault(err)
	}
	if decode.Prompt, err = codec.Prompt(request.messages, request.tools); err != nil {
		return err
	}
	decode.Stop = codec.Stop()
	started := g.config.Now()
	sampled, weights, err := g.config.Sampler.Sample(r.Context(), version, decode)
	if err != nil {
		return samplingFailure(err, version)
	}
	id := freshID()
	reply, _ := codec.Parse(sampled.Tokens, request.usable(), toolCallIDs(id))
	response, err := respond(codec, request, &trace.Call{
		ID: callID(id), Policy: version.Policy, Version: version.Number, Weights: weights, Prompt: decode.Prompt,
		Completion: sampled.Tokens, Logprobs: sampled.Logprobs, Finish: sampled.Finish, Started: started,
	}, reply)
	if err != nil {
		return fault(err)
	}
	_ = write(w, http.StatusOK, response) // who left does not need it
	return nil
}

// servedSettings are those of the client, or OpenAI's defaults.
func servedSettings(request *chatRequest) (model.DecodeRequest, error) {
	decode := model.DecodeRequest{MaxTokens: servedTokens, Temperature: 1, Seed: randomNumber()}
	if request.maxTokens > 0 {
		decode.MaxTokens = request.maxTokens
	}
	if t := request.temperature; t != nil {
		if *t < 0 || *t > hottest {
			return decode, invalid("temperature", "temperature is %v: want 0 to %d", *t, hottest)
		}
		decode.Temperature = *t
	}
	if s := string(request.seed); s != "" && s != "null" {
		seed, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return decode, invalid("seed", "seed is %s: want an integer of 64 bits", s)
		}
		decode.Seed = uint64(seed)
	}
	return decode, nil
}

func (g *Gateway) resolve(r *http.Request, name string) (model.VersionID, string, error) {
	version, codec, err := g.config.Versions.Resolve(r.Context(), name)
	if errors.Is(err, trace.ErrNotFound) {
		return version, "", &failure{status: http.StatusNotFound, code: "model_not_found", param: "model", message: err.Error(), cause: err}
	}
	return version, codec, err
}

func randomNumber() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}

func freshID() string { return idOf(randomNumber()) }
