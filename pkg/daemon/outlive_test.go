package daemon

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestOutlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		working, endWorking := context.WithCancel(context.Background())
		storing, end := Outlive(working, time.Second)
		time.Sleep(time.Hour)
		endWorking()
		time.Sleep(900 * time.Millisecond)
		synctest.Wait()
		if storing.Err() != nil {
			t.Error("ended with the work")
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if storing.Err() == nil {
			t.Error("lives on for ever")
		}
		end()
		working, endWorking = context.WithCancel(context.Background())
		defer endWorking()
		if storing, end = Outlive(working, time.Second); storing.Err() != nil {
			t.Error("ended from the beginning")
		}
		end()
		if storing.Err() == nil {
			t.Error("end does not end it")
		}
	})
}
