(component
  (import "onward:guest/types@0.1.0" (instance $types
    (type $f (record (field "kind" string) (field "message" string) (field "retryable" bool)))
    (export "failure" (type (eq $f)))))
  (alias export $types "failure" (type $failure))
  (import "wasi:io/error@0.2.3" (instance $io-error (export "error" (type (sub resource)))))
  (alias export $io-error "error" (type $error))
  (import "wasi:io/streams@0.2.3" (instance $streams
    (export "output-stream" (type $output (sub resource)))
    (alias outer 1 $error (type $e))
    (export "error" (type $error (eq $e)))
    (type $s (variant (case "last-operation-failed" (own $error)) (case "closed")))
    (export "stream-error" (type $stream-error (eq $s)))
    (export "[method]output-stream.blocking-write-and-flush" (func
      (param "self" (borrow $output)) (param "contents" (list u8)) (result (result (error $stream-error)))))))
  (alias export $streams "output-stream" (type $output))
  (import "wasi:cli/stderr@0.2.3" (instance $stderr
    (alias outer 1 $output (type $o))
    (export "output-stream" (type $output (eq $o)))
    (export "get-stderr" (func (result (own $output))))))
  (import "wasi:clocks/wall-clock@0.2.0" (instance $clock
    (type $d (record (field "seconds" u64) (field "nanoseconds" u32)))
    (export "datetime" (type $datetime (eq $d)))
    (export "now" (func (result $datetime)))))
  (import "wasi:random/random@0.2.0" (instance $random (export "get-random-u64" (func (result u64)))))
  (import "wasi:cli/environment@0.2.0" (instance $environment
    (export "get-arguments" (func (result (list string))))
    (export "made-up" (func))))

  (core module $libc
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 8192)))
  (core instance $libc (instantiate $libc))
  (alias core export $libc "memory" (core memory $memory))
  (alias core export $libc "realloc" (core func $realloc))
  (core func $get-stderr (canon lower (func $stderr "get-stderr")))
  (core func $write (canon lower (func $streams "[method]output-stream.blocking-write-and-flush") (memory $memory)))
  (core func $now (canon lower (func $clock "now") (memory $memory)))
  (core func $random (canon lower (func $random "get-random-u64")))
  (core func $arguments (canon lower (func $environment "get-arguments") (memory $memory) (realloc $realloc)))
  (core func $made-up (canon lower (func $environment "made-up")))

  (core module $main
    (import "libc" "memory" (memory 1))
    (import "wasi" "get-stderr" (func $get-stderr (result i32)))
    (import "wasi" "write" (func $write (param i32 i32 i32 i32)))
    (import "wasi" "now" (func $now (param i32)))
    (import "wasi" "random" (func $random (result i64)))
    (import "wasi" "arguments" (func $arguments (param i32)))
    (import "wasi" "made-up" (func $made-up))
    (func (export "describe") (result i32) (i32.const 16))
    (func (export "call") (param i32 i32 i32 i32) (result i32)
      ;;BODY
    )
    (data (i32.const 16) "\20\00\00\00\01\00\00\00")
    (data (i32.const 32) "\c8\00\00\00\04\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00")
    (data (i32.const 200) "flow")
    (data (i32.const 300) "a line\nhalf of one"))
  (core instance $main (instantiate $main
    (with "libc" (instance $libc))
    (with "wasi" (instance
      (export "get-stderr" (func $get-stderr)) (export "write" (func $write)) (export "now" (func $now))
      (export "random" (func $random)) (export "arguments" (func $arguments)) (export "made-up" (func $made-up))))))

  (type $kind-type (enum "workflow" "task"))
  (export $kind "kind" (type $kind-type))
  (type $function-type (record (field "name" string) (field "kind" $kind) (field "schema" (option string))))
  (export $function "function" (type $function-type))
  (func (export "describe") (result (list $function))
    (canon lift (core func $main "describe") (memory $memory)))
  (func (export "call") (param "function" string) (param "input" string) (result (result string (error $failure)))
    (canon lift (core func $main "call") (memory $memory) (realloc $realloc))))
