package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/local/localtest"
)

func waitFor(t testing.TB, there func() bool) {
	t.Helper()
	localtest.Eventually(t, 20*time.Second, func() error {
		if !there() {
			return errors.New("not yet")
		}
		return nil
	})
}
