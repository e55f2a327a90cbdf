(component
  (type $types-type (instance
    (type $f (record (field "kind" string) (field "message" string) (field "retryable" bool)))
    (export "failure" (type (eq $f)))))
  (import "onward:guest/types@0.1.0" (instance $types (type $types-type)))
  (alias export $types "failure" (type $failure))

  (type $host-type (instance
    (type $c (record (field "execution" string) (field "idempotency-key" string) (field "attempt" u32)))
    (export "context" (type $context (eq $c)))
    (type $l (enum "debug" "info" "warn" "error"))
    (export "level" (type $level (eq $l)))
    (export "own" (func (result $context)))
    (export "log" (func (param "level" $level) (param "message" string)))
    (export "now" (func (result s64)))
    (export "random" (func (param "length" u32) (result (list u8))))))
  (import "onward:guest/host@0.1.0" (instance $host (type $host-type)))

  (type $workflow-type (instance
    (alias outer 1 $failure (type $f))
    (export "failure" (type $failure (eq $f)))
    (export "timer" (func (param "duration-ms" u64) (result (result u32 (error $failure)))))
    (export "await-one" (func (param "promise" u32) (result (result string (error $failure)))))
    (export "is-cancelled" (func (result bool)))
    (export "continue-as-new" (func (param "input" string)))))
  (import "onward:guest/workflow@0.1.0" (instance $workflow (type $workflow-type)))

  (type $task-type (instance
    (alias outer 1 $failure (type $f))
    (export "failure" (type $failure (eq $f)))
    (type $q (record
      (field "method" string) (field "url" string) (field "headers" (list (tuple string string)))
      (field "body" (option (list u8))) (field "timeout-ms" (option u64))))
    (export "request" (type $request (eq $q)))
    (type $s (record
      (field "status" u16) (field "headers" (list (tuple string string))) (field "body" (list u8))))
    (export "response" (type $response (eq $s)))
    (export "http" (func (param "request" $request) (result (result $response (error $failure)))))))
  (import "onward:guest/task@0.1.0" (instance $task (type $task-type)))

  (core module $libc
    (memory (export "memory") 1)
    (global $top (mut i32) (i32.const 8192))
    (func (export "realloc") (param i32 i32 i32) (param $size i32) (result i32)
      (local $at i32)
      (local.set $at (global.get $top))
      (global.set $top
        (i32.and (i32.add (i32.add (global.get $top) (local.get $size)) (i32.const 7)) (i32.const -8)))
      (if (i32.gt_u (global.get $top) (i32.mul (memory.size) (i32.const 65536)))
        (then
          (drop (memory.grow (i32.add (i32.div_u (local.get $size) (i32.const 65536)) (i32.const 1))))))
      (local.get $at)))
  (core instance $libc (instantiate $libc))
  (alias core export $libc "memory" (core memory $memory))
  (alias core export $libc "realloc" (core func $realloc))

  (core func $own (canon lower (func $host "own") (memory $memory) (realloc $realloc)))
  (core func $log (canon lower (func $host "log") (memory $memory)))
  (core func $now (canon lower (func $host "now")))
  (core func $random (canon lower (func $host "random") (memory $memory) (realloc $realloc)))
  (core func $timer (canon lower (func $workflow "timer") (memory $memory) (realloc $realloc)))
  (core func $await-one (canon lower (func $workflow "await-one") (memory $memory) (realloc $realloc)))
  (core func $is-cancelled (canon lower (func $workflow "is-cancelled")))
  (core func $continue-as-new (canon lower (func $workflow "continue-as-new") (memory $memory)))
  (core func $http (canon lower (func $task "http") (memory $memory) (realloc $realloc)))

  (core module $main
    (import "libc" "memory" (memory 1))
    (import "host" "own" (func $own (param i32)))
    (import "host" "log" (func $log (param i32 i32 i32)))
    (import "host" "now" (func $now (result i64)))
    (import "host" "random" (func $random (param i32 i32)))
    (import "workflow" "timer" (func $timer (param i64 i32)))
    (import "workflow" "await-one" (func $await-one (param i32 i32)))
    (import "workflow" "is-cancelled" (func $is-cancelled (result i32)))
    (import "workflow" "continue-as-new" (func $continue-as-new (param i32 i32)))
    (import "task" "http" (func $http (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32)))
    (func $ok (param $text i32) (param $length i32) (result i32)
      (i32.store8 (i32.const 2048) (i32.const 0))
      (i32.store (i32.const 2052) (local.get $text))
      (i32.store (i32.const 2056) (local.get $length))
      (i32.const 2048))
    (func (export "describe") (result i32) (i32.const 16))
    (func $call (export "call")
      (param $f i32) (param $f-length i32) (param $input i32) (param $input-length i32) (result i32)
      ;;BODY
    )
    (data (i32.const 300) "the end is near")
    ;;DESCRIBED
  )
  (core instance $main (instantiate $main
    (with "libc" (instance $libc))
    (with "host" (instance
      (export "own" (func $own)) (export "log" (func $log)) (export "now" (func $now)) (export "random" (func $random))))
    (with "workflow" (instance
      (export "timer" (func $timer)) (export "await-one" (func $await-one))
      (export "is-cancelled" (func $is-cancelled)) (export "continue-as-new" (func $continue-as-new))))
    (with "task" (instance (export "http" (func $http))))))

  (type $kind-type (enum "workflow" "task"))
  (export $kind "kind" (type $kind-type))
  (type $function-type (record (field "name" string) (field "kind" $kind) (field "schema" (option string))))
  (export $function "function" (type $function-type))
  (func (export "describe") (result (list $function))
    (canon lift (core func $main "describe") (memory $memory)))
  (func (export "call") (param "function" string) (param "input" string) (result (result string (error $failure)))
    (canon lift (core func $main "call") (memory $memory) (realloc $realloc))))
