//! OpenCL C, which CUDA compiles too: behind `kernels/dialects/cuda.h`.

use std::fmt::Write as _;

use super::{Dialect, Purpose, call, infix, shift, sized};
use crate::program::{Binary, Expression, Program, Type, Unary, Variable};

/// OpenCL C.
pub struct OpenClC {
    give_up: &'static str,
}

fn name(ty: Type) -> &'static str {
    match ty {
        Type::I32 => "uint",
        Type::I64 => "ulong",
    }
}

/// The type of the body's function.
fn result(program: &Program) -> &'static str {
    program.result.map_or("void", |variable| name(variable.ty))
}

/// The entry point of a run.
fn run(text: &mut String, program: &Program) {
    text.push_str(
        "__kernel void run_module(__global const uint*arguments,__global const uchar*input,__global uchar*output,\
         __global uint*state,__global uint*pixels,__global uint*results,uint lanes,uint input_len,uint output_len,\
         uint state_len,uint pixels_len,uint width,uint time,uint fuel){\n",
    );
    text.push_str(
        "uint number=(uint)get_group_id(0)*THREADS+(uint)get_local_id(0);if(number>=lanes)return;\nLane lane;\n\
         lane.trap=0;lane.fuel=fuel;lane.number=number;lane.input_len=input_len;lane.output_len=output_len;\n\
         lane.state_len=state_len;lane.pixels_len=pixels_len;lane.width=width;lane.time=time;lane.input=input;\n\
         lane.output=output;lane.state=state;lane.pixels=pixels;\n",
    );
    private_memory(text, program);
    let mut arguments = String::from("&lane");
    for (at, parameter) in program.parameters.iter().enumerate() {
        let (low, high) = (2 * at, 2 * at + 1);
        let _ = match parameter.ty {
            Type::I32 => write!(arguments, ",arguments[{low}]"),
            Type::I64 => write!(arguments, ",(ulong)arguments[{high}]<<32|arguments[{low}]"),
        };
    }
    let (before, after) = match program.result {
        Some(_) => ("ulong result=", ""),
        None => ("", "ulong result=0;"),
    };
    let _ = writeln!(text, "{before}body({arguments});{after}");
    text.push_str(
        "results[3*number]=lane.trap;results[3*number+1]=(uint)result;results[3*number+2]=(uint)(result>>32);\n}\n",
    );
}

/// The entry point of a filter.
fn filter(text: &mut String, program: &Program) {
    text.push_str(
        "__kernel void undo_module(__global const Job*jobs,__global const uchar*before,__global uchar*after,\
         __global uint*results,uint blocks,uint slot,uint lanes,uint stage,uint number,uint fuel,uint lane_log){\n\
         uint item=(uint)get_group_id(0)*THREADS+(uint)get_local_id(0);Lane lane;ulong arguments[8];\n\
         if(!begin(&lane,arguments,jobs,before,after,results,item,blocks,slot,lanes,stage,number,\
         fuel,lane_log))return;\n",
    );
    private_memory(text, program);
    let mut arguments = String::from("&lane");
    for (at, parameter) in program.parameters.iter().enumerate() {
        let _ = write!(arguments, ",({})arguments[{at}]", name(parameter.ty));
    }
    let _ = writeln!(text, "body({arguments});\nend(&lane,results,item,lanes);\n}}");
}

/// A lane's memory, as it is at first.
fn private_memory(text: &mut String, program: &Program) {
    let words = program.memory.len() / 4 + 1;
    let _ = writeln!(
        text,
        "uint memory[{words}];for(uint i=0;i<{words}u;i++)memory[i]=0;lane.memory=memory;"
    );
    for (at, word) in super::words(program) {
        let _ = writeln!(text, "memory[{at}]={word}u;");
    }
}

impl Dialect for OpenClC {
    fn of(program: &Program) -> Self {
        Self { give_up: if program.result.is_some() { " 0" } else { "" } }
    }

    fn head(program: &Program) -> String {
        format!("#define MEMORY {}u\n// @pz_import module\n", program.memory.len())
    }

    fn start(program: &Program, leaves: bool) -> String {
        let mut text = format!("inline {} body(Lane*lane", result(program));
        for parameter in &program.parameters {
            let _ = write!(text, ",{} v{}", name(parameter.ty), parameter.index);
        }
        text.push_str("){\n");
        for ty in [Type::I32, Type::I64] {
            let is_own = |index: &u32| !program.parameters.iter().any(|one| one.index == *index);
            let all = (0..).zip(&program.variables).filter(|(_, other)| **other == ty);
            let all = all.map(|(index, _)| index).filter(is_own);
            let all: Vec<_> = all.map(|index| format!("v{index}=0")).collect();
            if !all.is_empty() {
                let _ = writeln!(text, "{} {};", name(ty), all.join(","));
            }
        }
        if leaves {
            text.push_str("uint leave=0u;\n");
        }
        for (variable, value) in &program.initial {
            let _ = writeln!(text, "v{}={value}u;", variable.index);
        }
        text
    }

    fn end(program: &Program, purpose: Purpose) -> String {
        let mut text = String::new();
        if let Some(result) = program.result {
            let _ = writeln!(text, "return v{};", result.index);
        }
        text.push_str("}\n");
        match purpose {
            Purpose::Run => run(&mut text, program),
            Purpose::Filter => filter(&mut text, program),
        }
        text
    }

    const LOOP: &'static str = "for(;;){";
    const LANE: &'static str = "lane,";
    const DROP: &'static str = "";

    fn give_up(&self) -> &str {
        self.give_up
    }

    fn constant(&self, text: &mut String, ty: Type, value: u64) {
        let _ = match ty {
            Type::I32 => write!(text, "{value}u"),
            // A constant that does not fit a word has 64 bits without a suffix for it.
            Type::I64 => write!(text, "(ulong){value}u"),
        };
    }

    fn unary(&self, text: &mut String, op: Unary, operand: &Expression) {
        let ty = operand.ty();
        let operands = std::slice::from_ref(operand);
        match op {
            Unary::Clz => call(self, text, "clz", operands),
            Unary::Ctz => call(self, text, &sized("trailing_zeros", ty), operands),
            Unary::Popcnt => {
                // CUDA's gives a word for either type.
                let _ = write!(text, "({})", name(ty));
                call(self, text, "popcount", operands);
            }
            Unary::Extend(bits) => {
                let unused = ty.bits() - u32::from(bits);
                let _ = write!(text, "{}({},{unused}u)", sized("extended", ty), self.text(operand));
            }
            Unary::Wrap => {
                text.push_str("(uint)");
                self.value(text, operand);
            }
            Unary::ExtendUnsigned => {
                text.push_str("(ulong)");
                self.value(text, operand);
            }
            Unary::ExtendSigned => {
                let _ = write!(text, "extended_long({},32u)", self.text(operand));
            }
        }
    }

    fn binary(&self, text: &mut String, op: Binary, operands: &[Expression; 2]) {
        let ty = operands[0].ty();
        if op.compares() {
            text.push_str("(uint)(");
            self.compare(text, op, operands);
            text.push(')');
            return;
        }
        let op = match op {
            Binary::Add => "+",
            Binary::Sub => "-",
            Binary::Mul => "*",
            Binary::And => "&",
            Binary::Or => "|",
            Binary::Xor => "^",
            Binary::Shl => return shift(self, text, "<<", operands),
            Binary::ShrUnsigned => return shift(self, text, ">>", operands),
            Binary::ShrSigned => return call(self, text, &sized("shifted", ty), operands),
            Binary::Rotl => return call(self, text, &sized("rotated", ty), operands),
            _ => {
                let (value, by) = (self.text(&operands[0]), self.text(&operands[1]));
                let _ = write!(text, "{}({value},0u-{by})", sized("rotated", ty));
                return;
            }
        };
        infix(self, text, op, operands);
    }

    fn select(&self, text: &mut String, parts: &[Expression; 3]) {
        text.push('(');
        self.condition(text, &parts[0]);
        text.push('?');
        self.value(text, &parts[1]);
        text.push(':');
        self.value(text, &parts[2]);
        text.push(')');
    }

    fn loaded(&self, text: &mut String, into: Variable, bits: u32, is_signed: bool, load: &str) {
        if is_signed {
            let unused = into.ty.bits() - bits;
            let _ = write!(text, "{}({load},{unused}u)", sized("extended", into.ty));
        } else {
            text.push_str(load);
        }
    }

    fn compare(&self, text: &mut String, op: Binary, operands: &[Expression; 2]) {
        let sign = match (op, operands[0].ty()) {
            (Binary::LessSigned | Binary::LessOrEqualSigned, Type::I32) => ("(int)", ""),
            // No type of 64 bits with a sign has the same name everywhere.
            (Binary::LessSigned | Binary::LessOrEqualSigned, Type::I64) => ("(SIGN64^", ")"),
            _ => ("", ""),
        };
        let symbol = match op {
            Binary::Eq => "==",
            Binary::Ne => "!=",
            Binary::LessUnsigned | Binary::LessSigned => "<",
            _ => "<=",
        };
        for (operand, symbol) in operands.iter().zip([symbol, ""]) {
            text.push_str(sign.0);
            self.value(text, operand);
            text.push_str(sign.1);
            text.push_str(symbol);
        }
    }

    fn low_word(&self, text: &mut String, value: &Expression) {
        if value.ty() == Type::I64 {
            text.push_str("(uint)");
        }
        self.value(text, value);
    }
}
