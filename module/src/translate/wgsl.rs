//! WGSL. It has no integers of 64 bits, so that these are pairs of words, the lower one first.

use std::fmt::Write as _;

use super::{Dialect, Purpose, call, infix, shift, sized};
use crate::program::{Binary, Expression, Program, Type, Unary, Variable};

/// WGSL.
pub struct Wgsl {
    give_up: &'static str,
}

fn name(ty: Type) -> &'static str {
    match ty {
        Type::I32 => "u32",
        Type::I64 => "vec2<u32>",
    }
}

impl Dialect for Wgsl {
    fn of(program: &Program) -> Self {
        let give_up = match program.result.map(|variable| variable.ty) {
            None => "",
            Some(Type::I32) => " 0u",
            Some(Type::I64) => " vec2<u32>(0u)",
        };
        Self { give_up }
    }

    fn head(program: &Program) -> String {
        let words = program.memory.len() / 4 + 1;
        let bytes = program.memory.len();
        format!(
            "const MEMORY = {bytes}u;\nvar<private> memory: array<u32, {words}>;\n// @pz_import module\n"
        )
    }

    fn start(program: &Program, leaves: bool) -> String {
        let mut text = String::from("fn body(");
        for parameter in &program.parameters {
            let _ = write!(text, "p{}: {},", parameter.index, name(parameter.ty));
        }
        text.push(')');
        if let Some(result) = program.result {
            let _ = write!(text, "->{}", name(result.ty));
        }
        text.push_str("{\n");
        for (index, ty) in program.variables.iter().enumerate() {
            let _ = writeln!(text, "var v{index}: {};", name(*ty));
        }
        for parameter in &program.parameters {
            let _ = writeln!(text, "v{0}=p{0};", parameter.index);
        }
        if leaves {
            text.push_str("var leave=0u;\n");
        }
        for (variable, value) in &program.initial {
            let _ = writeln!(text, "v{}={};", variable.index, constant(variable.ty, *value));
        }
        text
    }

    fn end(program: &Program, purpose: Purpose) -> String {
        let mut text = String::new();
        if let Some(result) = program.result {
            let _ = writeln!(text, "return v{};", result.index);
        }
        let entry = purpose.entry();
        let _ = writeln!(
            text,
            "}}\n// @pz_entry\nfn {entry}(local_index: u32, workgroup_index: u32) {{\n\
             let item=workgroup_index*THREADS+local_index;"
        );
        text.push_str(match purpose {
            Purpose::Run => {
                "number=item;\nname_buffers();\nif number>=args.lanes{return;}\nfuel=args.fuel;\n"
            }
            Purpose::Filter => "if !begin(item){return;}\n",
        });
        for (at, word) in super::words(program) {
            let _ = writeln!(text, "memory[{at}]={word}u;");
        }
        let mut arguments = String::new();
        for (at, parameter) in program.parameters.iter().enumerate() {
            let (low, high) = (2 * at, 2 * at + 1);
            let _ = match parameter.ty {
                Type::I32 => write!(arguments, "arguments[{low}],"),
                Type::I64 => write!(arguments, "vec2<u32>(arguments[{low}],arguments[{high}]),"),
            };
        }
        if purpose == Purpose::Filter {
            let drop = if program.result.is_some() { "_=" } else { "" };
            let _ = writeln!(text, "{drop}body({arguments});\nend(item);\n}}");
            return text;
        }
        let _ = match program.result.map(|variable| variable.ty) {
            None => writeln!(text, "body({arguments});let result=vec2<u32>(0u);"),
            Some(Type::I32) => writeln!(text, "let result=vec2<u32>(body({arguments}),0u);"),
            Some(Type::I64) => writeln!(text, "let result=body({arguments});"),
        };
        text.push_str(
            "results[3u*number]=trap;results[3u*number+1u]=result.x;results[3u*number+2u]=result.y;\n}\n",
        );
        text
    }

    const LOOP: &'static str = "loop{";
    const LANE: &'static str = "";
    const DROP: &'static str = "_=";

    fn give_up(&self) -> &str {
        self.give_up
    }

    fn constant(&self, text: &mut String, ty: Type, value: u64) {
        text.push_str(&constant(ty, value));
    }

    fn unary(&self, text: &mut String, op: Unary, operand: &Expression) {
        let ty = operand.ty();
        let operands = std::slice::from_ref(operand);
        match op {
            Unary::Clz if ty == Type::I32 => call(self, text, "countLeadingZeros", operands),
            Unary::Clz => call(self, text, "leading_zeros_long", operands),
            Unary::Ctz if ty == Type::I32 => call(self, text, "countTrailingZeros", operands),
            Unary::Ctz => call(self, text, "trailing_zeros_long", operands),
            Unary::Popcnt if ty == Type::I32 => call(self, text, "countOneBits", operands),
            Unary::Popcnt => call(self, text, "ones_long", operands),
            Unary::Extend(bits) => {
                let unused = ty.bits() - u32::from(bits);
                let _ = write!(text, "{}({},{unused}u)", sized("extended", ty), self.text(operand));
            }
            Unary::Wrap => {
                self.value(text, operand);
                text.push_str(".x");
            }
            Unary::ExtendUnsigned => {
                let _ = write!(text, "vec2<u32>({},0u)", self.text(operand));
            }
            Unary::ExtendSigned => call(self, text, "with_sign", operands),
        }
    }

    fn binary(&self, text: &mut String, op: Binary, operands: &[Expression; 2]) {
        let ty = operands[0].ty();
        if op.compares() {
            text.push_str("u32(");
            self.compare(text, op, operands);
            text.push(')');
            return;
        }
        let symbol = match (op, ty) {
            (Binary::And, _) => "&",
            (Binary::Or, _) => "|",
            (Binary::Xor, _) => "^",
            (Binary::Add, Type::I32) => "+",
            (Binary::Sub, Type::I32) => "-",
            (Binary::Mul, Type::I32) => "*",
            (Binary::Add, Type::I64) => return call(self, text, "add_long", operands),
            (Binary::Sub, Type::I64) => return call(self, text, "sub_long", operands),
            (Binary::Mul, Type::I64) => return call(self, text, "mul_long", operands),
            (Binary::Shl, Type::I32) => return shift(self, text, "<<", operands),
            (Binary::ShrUnsigned, Type::I32) => return shift(self, text, ">>", operands),
            (Binary::Shl, Type::I64) => return call(self, text, "shl_long", operands),
            (Binary::ShrUnsigned, Type::I64) => return call(self, text, "shr_long", operands),
            (Binary::ShrSigned, _) => return call(self, text, &sized("shifted", ty), operands),
            (Binary::Rotl, _) => return call(self, text, &sized("rotated", ty), operands),
            _ => return rotate_right(self, text, operands),
        };
        infix(self, text, symbol, operands);
    }

    fn select(&self, text: &mut String, parts: &[Expression; 3]) {
        text.push_str("select(");
        self.value(text, &parts[2]);
        text.push(',');
        self.value(text, &parts[1]);
        text.push(',');
        self.condition(text, &parts[0]);
        text.push(')');
    }

    fn loaded(&self, text: &mut String, into: Variable, bits: u32, is_signed: bool, load: &str) {
        let unused = 32 - bits;
        let word = if is_signed && unused > 0 {
            format!("extended({load},{unused}u)")
        } else {
            load.to_string()
        };
        let _ = match (into.ty, is_signed) {
            (Type::I32, _) => write!(text, "{word}"),
            (Type::I64, true) => write!(text, "with_sign({word})"),
            (Type::I64, false) => write!(text, "vec2<u32>({word},0u)"),
        };
    }

    fn compare(&self, text: &mut String, op: Binary, operands: &[Expression; 2]) {
        let [left, right] = [&operands[0], &operands[1]].map(|operand| self.text(operand));
        let _ = match (op, operands[0].ty()) {
            (Binary::Eq, Type::I32) => write!(text, "{left}=={right}"),
            (Binary::Ne, Type::I32) => write!(text, "{left}!={right}"),
            // A `<` behind a name could begin a list of types.
            (Binary::LessUnsigned, Type::I32) => write!(text, "({left})<({right})"),
            (Binary::LessOrEqualUnsigned, Type::I32) => write!(text, "({left})<=({right})"),
            (Binary::LessSigned, Type::I32) => {
                write!(text, "bitcast<i32>({left})<bitcast<i32>({right})")
            }
            (_, Type::I32) => write!(text, "bitcast<i32>({left})<=bitcast<i32>({right})"),
            (Binary::Eq, Type::I64) => write!(text, "all({left}=={right})"),
            (Binary::Ne, Type::I64) => write!(text, "any({left}!={right})"),
            (Binary::LessUnsigned, Type::I64) => write!(text, "less_long({left},{right})"),
            (Binary::LessOrEqualUnsigned, Type::I64) => write!(text, "!less_long({right},{left})"),
            (Binary::LessSigned, Type::I64) => write!(text, "less_signed_long({left},{right})"),
            (_, Type::I64) => write!(text, "!less_signed_long({right},{left})"),
        };
    }

    fn low_word(&self, text: &mut String, value: &Expression) {
        self.value(text, value);
        if value.ty() == Type::I64 {
            text.push_str(".x");
        }
    }
}

fn constant(ty: Type, value: u64) -> String {
    match ty {
        Type::I32 => format!("{value}u"),
        Type::I64 => format!("vec2<u32>({}u,{}u)", value & 0xffff_ffff, value >> 32),
    }
}

/// Appends a rotation to the right: to the left by what the width lacks.
fn rotate_right(dialect: &Wgsl, text: &mut String, operands: &[Expression; 2]) {
    let value = dialect.text(&operands[0]);
    let _ = match &operands[1] {
        Expression::Constant(Type::I32, by) => {
            write!(text, "rotated({value},{}u)", 32 - (by & 31))
        }
        Expression::Constant(Type::I64, by) => {
            write!(text, "rotated_long({value},vec2<u32>({}u,0u))", 64 - (by & 63))
        }
        by if by.ty() == Type::I32 => write!(text, "rotated({value},0u-{})", dialect.text(by)),
        by => write!(text, "rotated_long({value},negated_long({}))", dialect.text(by)),
    };
}
