package cli

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
)

// warnings is a slog.Handler that says the warnings of what a command uses as the command says its own.
type warnings struct {
	to    io.Writer
	attrs []slog.Attr
}

func (w warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle writes one line: the message, in parentheses what it is about, and at its end the error.
func (w warnings) Handle(_ context.Context, r slog.Record) error {
	var about []string
	reason := ""
	add := func(a slog.Attr) bool {
		if a.Key == "error" {
			reason = ": " + a.Value.String()
		} else {
			about = append(about, a.Key+" "+a.Value.Resolve().String())
		}
		return true
	}
	for _, a := range w.attrs {
		add(a)
	}
	r.Attrs(add)
	text := "warning: " + r.Message
	if len(about) > 0 {
		text += " (" + strings.Join(about, ", ") + ")"
	}
	say(w.to, oneLine(text+reason))
	return nil
}

func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.to, slices.Concat(w.attrs, attrs)}
}

// WithGroup leaves groups out: a line for people has no use for them.
func (w warnings) WithGroup(string) slog.Handler { return w }
