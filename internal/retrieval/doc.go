// Package retrieval is a tool of agents: it finds the paragraphs of a corpus that fit
// a query best, by BM25, and serves that over HTTP, plain and as the Model Context
// Protocol (https://modelcontextprotocol.io).
//
// It is no search engine for the web and has no embeddings. It knows nothing of runs:
// what an agent searched is on record as the agent's own tool calls.
//
// Guarantees: the same corpus and the same query give the same paragraphs in the same
// order, whatever was asked before.
package retrieval
