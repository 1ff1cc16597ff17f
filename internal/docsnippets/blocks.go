// Package docsnippets reads the code blocks of the documents, so that tests can run what the documents show.
//
// A block is fenced by three backquotes with its language after the first. A block without a language is an error: it would be shown
// and not run. Illustrations that are not to be run are indented by four spaces.
package docsnippets

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Block is one fenced block of code.
type Block struct {
	Language string
	Line     int // of its first line in the document, from 1
	Code     string
}

// Read returns the blocks of a Markdown document, in order.
func Read(path string) ([]Block, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	blocks, err := parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("read the code blocks of %s: %w", path, err)
	}
	return blocks, nil
}

func parse(text string) ([]Block, error) {
	const fence = "```"
	var blocks []Block
	open := false
	for i, line := range strings.Split(text, "\n") {
		language, isFence := strings.CutPrefix(line, fence)
		switch {
		case !isFence && open:
			blocks[len(blocks)-1].Code += line + "\n"
		case isFence && open:
			if language != "" {
				return nil, fmt.Errorf("line %d: a block begins inside another", i+1)
			}
			open = false
		case isFence:
			if language == "" {
				return nil, fmt.Errorf("line %d: a block has no language", i+1)
			}
			blocks = append(blocks, Block{Language: language, Line: i + 2})
			open = true
		}
	}
	if open {
		return nil, errors.New("the last block has no end")
	}
	return blocks, nil
}
