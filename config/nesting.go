package config

import "bytes"

// maxNesting bounds how deep tables and lists are in each other, be it by brackets or by dotted keys. The parser's effort
// grows with its cube: a file of 16 KiB can keep it busy for half a minute. GitLab's own keys need ten levels.
const maxNesting = 32

// tooDeep finds the place, line and column from 1, where a file nests deeper than maxNesting: 0 where it doesn't. It counts
// brackets and dots that are neither in a text nor in a comment. What isn't TOML may be judged wrongly, and is refused by
// the parser if not here.
func tooDeep(data []byte) (line, column int) {
	depth, dots := 0, 0 // dots are those of the innermost key, and part of depth
	var outer []int     // the dots of the keys around it, one for each open bracket
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '#':
			i += lengthUntil(data[i:], "\n") - 1
		case '"', '\'':
			i += textLength(data[i:]) - 1
		case '[', '{':
			outer = append(outer, dots)
			depth, dots = depth+1, 0
		case ']', '}':
			if n := len(outer) - 1; n >= 0 {
				depth, dots, outer = depth-dots-1, outer[n], outer[:n]
			}
		case '.':
			depth, dots = depth+1, dots+1
		case ',':
			depth, dots = depth-dots, 0
		case '\n':
			if len(outer) == 0 {
				depth, dots = 0, 0
			}
		}
		if depth > maxNesting {
			return 1 + bytes.Count(data[:i], []byte("\n")), i - bytes.LastIndexByte(data[:i], '\n')
		}
	}
	return 0, 0
}

// textLength is how long the text at the beginning of data is, with its quotes. One that doesn't end ends with its line.
func textLength(data []byte) int {
	quote := data[:1]
	if many := bytes.Repeat(quote, 3); bytes.HasPrefix(data, many) {
		for i := 3; i < len(data); i++ {
			switch {
			case data[i] == '\\' && quote[0] == '"':
				i++
			case bytes.HasPrefix(data[i:], many):
				return i + 3
			}
		}
		return len(data)
	}
	for i := 1; i < len(data) && data[i] != '\n'; i++ {
		switch {
		case data[i] == '\\' && quote[0] == '"':
			i++
		case data[i] == quote[0]:
			return i + 1
		}
	}
	return lengthUntil(data, "\n")
}

// lengthUntil is how much comes before the end, or all where there is none.
func lengthUntil(data []byte, end string) int {
	if i := bytes.Index(data, []byte(end)); i >= 0 {
		return i
	}
	return len(data)
}
