package config

// checker gathers what is wrong with one runner, and what is worth a warning.
type checker struct {
	*entry
	problems []Problem
	warnings []Problem
}

func check(e *entry) *checker {
	c := &checker{entry: e}
	return c
}

func duplicateTokens(entries []*entry) []Problem { return nil }
