// Testenv runs a command with a PostgreSQL and a RabbitMQ that all tests of the command share:
//
//	testenv go test ./...
//
// It starts both, exports LEVERET_TEST_POSTGRES and LEVERET_TEST_AMQP, runs the command, stops the
// servers and exits with the command's code. Interrupts go to the command and all it started; the
// servers are stopped when it has ended. They are stopped, too, when testenv is killed.
//
// Without a command it prints the variables and waits for an interrupt.
//
// A service that is missing is named on standard error and its variable not set; with
// LEVERET_REQUIRE_SERVICES=1 the command is not run and the code is 1.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/leveret-go/leveret/internal/testenv"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(argv []string) int {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)

	begin := time.Now()
	services, err := testenv.Up()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		return 1
	}
	defer func() {
		if err := services.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	for _, sentence := range services.Missing {
		fmt.Fprintln(os.Stderr, "testenv:", sentence)
	}
	if len(services.Missing) > 0 && testenv.Required() {
		return 1
	}
	fmt.Fprintf(os.Stderr, "testenv: services ready after %v\n", time.Since(begin).Round(time.Millisecond))

	if len(argv) == 0 {
		for _, line := range services.Env {
			fmt.Println(line)
		}
		<-signals
		return 0
	}
	select {
	case <-signals: // interrupted during the start
		return 130
	default:
	}

	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), services.Env...)
	cmd.Stdout = os.Stdout
	cmd.Stderr = os.Stderr
	// A group of its own, so that a signal reaches the test processes and not only go test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		return 1
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case sig := <-signals:
			syscall.Kill(-cmd.Process.Pid, sig.(syscall.Signal))
		case err := <-ended:
			return code(err)
		}
	}
}

// code returns what a shell would: the exit code, or 128 and the signal.
func code(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exit):
		fmt.Fprintln(os.Stderr, "testenv:", err)
		return 1
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}
