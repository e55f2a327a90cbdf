//! Expansion of the attributes: from a function to a function and a type that describes it.
//!
//! The name stands for two items: a type that describes the function, and the function itself,
//! whose failure is marked with that type. So `invoke(order, input)` finds the type, and
//! `order(input)?` is still a plain call. A constant of the same name instead of the type would
//! shadow every pattern variable called `order`.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{Attribute, Error, FnArg, ItemFn, Pat, Result, ReturnType, Signature, Type};

/// Maximum number of arguments that `onward::Callable` is implemented for.
const ARGUMENTS_MAX: usize = 12;

/// The kind of function that the attribute declares.
#[derive(Clone, Copy)]
pub(crate) enum AttributeKind {
    Workflow,
    Task,
}

impl AttributeKind {
    fn marker_trait(self) -> Ident {
        match self {
            Self::Workflow => format_ident!("Workflow"),
            Self::Task => format_ident!("Task"),
        }
    }
}

pub(crate) fn expand_function(
    arguments: &TokenStream,
    item: &ItemFn,
    kind: AttributeKind,
) -> Result<TokenStream> {
    let wants_schema = wants_schema(arguments)?;
    check_signature(&item.sig)?;
    let types = argument_types(&item.sig)?;
    let (input, pattern, places) = input_parts(&types);
    let (visibility, name, marker) = (&item.vis, &item.sig.ident, kind.marker_trait());
    let text = name.unraw().to_string();
    let doc = format!("Describes the function [`{text}`]({text}()) to the compiler.");
    let schema = wants_schema.then(|| {
        quote! {
            fn schema() -> ::core::option::Option<::std::string::String> {
                ::core::option::Option::Some(::onward::__schema!(#input))
            }
        }
    });
    let function = mark_function(item, &types);
    let output = output_type(&item.sig);
    Ok(quote! {
        #function

        #[doc = #doc]
        #[expect(non_camel_case_types, reason = "the type has the name of its function")]
        #visibility enum #name {}

        impl ::onward::Function for #name {
            type Input = #input;
            type Output = <#output as ::onward::FunctionResult>::Output;
            const NAME: &'static str = #text;
            const KIND: ::onward::FunctionKind = ::onward::FunctionKind::#marker;

            fn run(#pattern: Self::Input) -> ::onward::Result<Self::Output> {
                ::onward::FunctionResult::into_result(#name(#(#places),*))
            }

            #schema
        }

        impl ::onward::#marker for #name {}
    })
}

/// The function as written, inside one whose failure is marked with its type.
fn mark_function(item: &ItemFn, types: &[&Type]) -> TokenStream {
    let ItemFn {
        attrs,
        vis,
        sig,
        block,
    } = item;
    let (docs, others): (Vec<&Attribute>, Vec<&Attribute>) =
        attrs.iter().partition(|it| it.path().is_ident("doc"));
    let (name, inputs, output) = (&sig.ident, &sig.inputs, output_type(sig));
    let names: Vec<Ident> = sig
        .inputs
        .iter()
        .enumerate()
        .map(|(place, input)| argument_name(place, input))
        .collect();
    quote! {
        #(#docs)*
        #vis fn #name(#(#names: #types),*) -> ::onward::DirectCallResult<#name, #output> {
            #(#others)*
            fn __onward_body(#inputs) -> #output #block
            ::onward::DirectCallError::mark_result(__onward_body(#(#names),*))
        }
    }
}

fn output_type(signature: &Signature) -> TokenStream {
    match &signature.output {
        ReturnType::Default => quote!(()),
        ReturnType::Type(_, output) => quote!(#output),
    }
}

/// The type of the input, the pattern that takes it apart, and the names in the pattern.
fn input_parts(types: &[&Type]) -> (TokenStream, TokenStream, Vec<Ident>) {
    let places: Vec<Ident> = (0..types.len())
        .map(|place| format_ident!("argument_{place}"))
        .collect();
    match (types, &places[..]) {
        ([one], [place]) => (quote!(#one), quote!(#place), places),
        _ => (quote!((#(#types),*)), quote!((#(#places),*)), places),
    }
}

/// The name of an argument in the source, for documentation.
fn argument_name(place: usize, argument: &FnArg) -> Ident {
    match argument {
        FnArg::Typed(typed) => match &*typed.pat {
            Pat::Ident(pattern) => pattern.ident.clone(),
            _ => format_ident!("argument_{place}"),
        },
        FnArg::Receiver(_) => format_ident!("argument_{place}"),
    }
}

fn wants_schema(arguments: &TokenStream) -> Result<bool> {
    match arguments.to_string().as_str() {
        "" => Ok(false),
        "schema" => Ok(true),
        _ => Err(Error::new_spanned(
            arguments,
            "the only argument is `schema`: a JSON schema of the input",
        )),
    }
}

fn check_signature(signature: &Signature) -> Result<()> {
    if let Some(token) = &signature.asyncness {
        return Err(Error::new_spanned(
            token,
            "write it without async: waiting is what `wait` and `invoke` do",
        ));
    }
    if let Some(token) = &signature.unsafety {
        return Err(Error::new_spanned(
            token,
            "the host calls this function: it must be safe",
        ));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &signature.generics,
            "the host calls this function: its types must be known",
        ));
    }
    if signature.inputs.len() > ARGUMENTS_MAX {
        let message = format!("at most {ARGUMENTS_MAX} arguments: take a struct instead");
        return Err(Error::new_spanned(&signature.inputs, message));
    }
    Ok(())
}

fn argument_types(signature: &Signature) -> Result<Vec<&Type>> {
    signature.inputs.iter().map(argument_type).collect()
}

fn argument_type(argument: &FnArg) -> Result<&Type> {
    match argument {
        FnArg::Receiver(receiver) => Err(Error::new_spanned(
            receiver,
            "a method cannot be called by the host",
        )),
        FnArg::Typed(typed) => match &*typed.ty {
            Type::Reference(reference) => Err(Error::new_spanned(
                reference,
                "take an owned value: it is read from the journal",
            )),
            owned => Ok(owned),
        },
    }
}
